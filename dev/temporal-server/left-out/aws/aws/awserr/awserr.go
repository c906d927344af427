package awserr

type (
	Error interface {
		error
		Code() string
		OrigErr() error
	}
	RequestFailure interface {
		Error
		StatusCode() int
	}
)
