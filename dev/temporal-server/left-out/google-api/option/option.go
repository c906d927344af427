package option

// WithTokenSource is named by Temporal's archive in Google Cloud Storage.
func WithTokenSource(any) any { return nil }
