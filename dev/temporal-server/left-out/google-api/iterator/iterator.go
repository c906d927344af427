package iterator

import "io"

// Done is named by Temporal's archive in Google Cloud Storage.
var Done = io.EOF
