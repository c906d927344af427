// Package aws has what Temporal's archive in S3 and its Elasticsearch name of AWS.
package aws

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go/aws/credentials"
)

// ErrLeftOut is what every call into AWS answers.
var ErrLeftOut = errors.New("AWS is left out of this build")

type (
	Context      = context.Context
	LogLevelType uint

	Config struct {
		Endpoint, Region *string
		S3ForcePathStyle *bool
		LogLevel         *LogLevelType
		Credentials      *credentials.Credentials
	}
)

func Bool(value bool) *bool       { return &value }
func Int64(value int64) *int64    { return &value }
func String(value string) *string { return &value }
