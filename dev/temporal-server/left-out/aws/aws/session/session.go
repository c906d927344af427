package session

import "github.com/aws/aws-sdk-go/aws"

type Session struct{ Config *aws.Config }

func NewSession(...*aws.Config) (*Session, error) { return nil, aws.ErrLeftOut }
