// Package storage has what Temporal's archive in Google Cloud Storage names.
package storage

import (
	"context"
	"errors"
	"io"
)

const ScopeFullControl = ""

var errLeftOut = errors.New("Google Cloud Storage is left out of this build")

type (
	Client         struct{}
	BucketHandle   struct{}
	BucketAttrs    struct{}
	ObjectHandle   struct{}
	ObjectAttrs    struct{ Name string }
	ObjectIterator struct{}
	Query          struct{ Prefix string }
	Reader         struct{ io.ReadCloser }
	Writer         struct{ io.WriteCloser }
)

func NewClient(context.Context, ...any) (*Client, error) { return nil, errLeftOut }

func (*Client) Bucket(string) *BucketHandle { return nil }

func (*BucketHandle) Attrs(context.Context) (*BucketAttrs, error)     { return nil, errLeftOut }
func (*BucketHandle) Object(string) *ObjectHandle                     { return nil }
func (*BucketHandle) Objects(context.Context, *Query) *ObjectIterator { return nil }

func (*ObjectHandle) Attrs(context.Context) (*ObjectAttrs, error) { return nil, errLeftOut }
func (*ObjectHandle) NewReader(context.Context) (*Reader, error)  { return nil, errLeftOut }
func (*ObjectHandle) NewWriter(context.Context) *Writer           { return nil }
func (*ObjectIterator) Next() (*ObjectAttrs, error)               { return nil, errLeftOut }
func (*Writer) CloseWithError(error) error                        { return errLeftOut }
