package types

type (
	Object       struct{ Key *string }
	CommonPrefix struct{ Prefix *string }
	NoSuchBucket struct{ error }
	NoSuchKey    struct{ error }
)
