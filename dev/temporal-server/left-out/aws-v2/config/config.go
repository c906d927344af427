// Package config has what Temporal's archive in S3 and its Elasticsearch name of AWS's configuration.
package config

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
)

var errLeftOut = errors.New("AWS is left out of this build")

type Option struct{}

type EnvConfig struct{ Credentials aws.Credentials }

func NewEnvConfig() (EnvConfig, error)           { return EnvConfig{}, errLeftOut }
func WithRegion(string) Option                   { return Option{} }
func WithClientLogMode(aws.ClientLogMode) Option { return Option{} }
func LoadDefaultConfig(context.Context, ...Option) (aws.Config, error) {
	return aws.Config{}, errLeftOut
}
