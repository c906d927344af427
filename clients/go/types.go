package notificationintent

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FieldType is the type of a field of a payload.
type FieldType int

const (
	StringField FieldType = iota
	IntegerField
	BooleanField
)

// TextFormat says what a text may be.
type TextFormat int

const (
	// AnyFormat takes every text.
	AnyFormat TextFormat = iota
	// LineFormat takes one line that is not blank, without control and bidi characters.
	LineFormat
	// LinesFormat takes several lines that are not blank, without other control and bidi characters.
	LinesFormat
)

// PayloadField says what a field of a payload must be.
type PayloadField struct {
	Name     string
	Type     FieldType
	Optional bool
	Format   TextFormat
	// Min and Max are limits of an integer, or of the number of characters of a text; nil for none.
	Min, Max *int64
	// Enum are the texts that are taken; none for any.
	Enum []string
}

// TypeSpec is what a service knows of a notification type.
type TypeSpec struct {
	// Producer is the one service that may publish the type.
	Producer  string
	Audiences []AudienceKind
	// Fields of the payload, in the order of their checks. Further fields pass through.
	Fields []PayloadField
	// Retired types are refused.
	Retired bool
}

// TypeCatalog has the types of a service by their names. `galaxy-notify catalog clients` writes one.
type TypeCatalog map[string]TypeSpec

// Limit is a limit of a [PayloadField].
func Limit(value int64) *int64 { return &value }

// problem says what is wrong with a value; empty when nothing is.
func (f PayloadField) problem(value any) string {
	switch f.Type {
	case BooleanField:
		if _, isBoolean := value.(bool); !isBoolean {
			return "must be true or false"
		}
	case IntegerField:
		number, isNumber := value.(float64)
		switch {
		case !isNumber || !isSafeInteger(number):
			return "must be a whole number up to 2^53 - 1"
		case f.Min != nil && number < float64(*f.Min):
			return "is too small"
		case f.Max != nil && number > float64(*f.Max):
			return "is too large"
		}
	default:
		text, isText := value.(string)
		if !isText {
			return "must be a text"
		}
		return f.problemOfText(text)
	}
	return ""
}

func (f PayloadField) problemOfText(text string) string {
	length := int64(utf8.RuneCountInString(text))
	switch {
	case f.Enum != nil && !slices.Contains(f.Enum, text):
		return fmt.Sprintf("must be one of %s", strings.Join(f.Enum, ", "))
	case f.Format != AnyFormat && isBlank(text):
		return "must not be blank"
	case f.Format != AnyFormat && strings.ContainsFunc(text, func(r rune) bool { return actsOnText(r, f.Format) }):
		return "must have no control or bidi characters"
	case f.Format != AnyFormat && !areIsolatesClosed(text):
		return "must close each bidi isolate"
	case f.Min != nil && length < *f.Min:
		return fmt.Sprintf("must have at least %d characters", *f.Min)
	case f.Max != nil && length > *f.Max:
		return fmt.Sprintf("must have at most %d characters", *f.Max)
	}
	return ""
}

// areIsolatesClosed is whether what stands behind the text keeps its direction.
func areIsolatesClosed(text string) bool {
	open := 0
	for _, r := range text {
		switch {
		case r == '\u2069':
			open--
		case r >= '\u2066' && r < '\u2069':
			open++
		}
		if open < 0 {
			return false
		}
	}
	return open == 0
}

// actsOnText is whether a character ends a line or reverses the direction of what follows, where the field may not.
func actsOnText(r rune, format TextFormat) bool {
	switch {
	case r == '\u061c' || r == '\u200e' || r == '\u200f' || r >= '\u202a' && r <= '\u202e':
		return true
	case r == '\t':
		return false
	case format == LinesFormat:
		return unicode.Is(unicode.Cc, r) && r != '\n' && r != '\r'
	default:
		return unicode.Is(unicode.Cc, r) || r == '\u2028' || r == '\u2029'
	}
}
