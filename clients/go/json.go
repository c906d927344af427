package notificationintent

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const maxSafeInteger = 1<<53 - 1

func isSafeInteger(number float64) bool {
	return number == math.Trunc(number) && math.Abs(number) <= maxSafeInteger
}

// parseJSON reads a text into nil, bool, float64, string, []any and map[string]any, and says what is wrong with it.
//
// encoding/json would not do: it puts another character in the place of a lone surrogate without a word.
func parseJSON(text string) (value any, problem string) {
	reader := &jsonReader{text: text}
	value, ok := reader.read()
	if reader.isDeep {
		return nil, fmt.Sprintf("is nested deeper than %d levels", maxJSONDepth)
	}
	if !ok {
		return nil, "is not valid JSON"
	}
	if problem := flawIn(value); problem != "" {
		return nil, problem
	}
	return value, ""
}

// flawIn is what of a value would be lost or changed on its way. The reader bounds the depth of the recursion.
func flawIn(value any) string {
	switch value := value.(type) {
	case string:
		return flawInText(value)
	case float64:
		isExact := !math.IsInf(value, 0) && (value != math.Trunc(value) || isSafeInteger(value))
		if !isExact {
			return "has a number that JSON cannot carry exactly"
		}
	case []any:
		for _, inner := range value {
			if flaw := flawIn(inner); flaw != "" {
				return flaw
			}
		}
	case map[string]any:
		for key, inner := range value {
			if flaw := flawInText(key); flaw != "" {
				return flaw
			}
			if flaw := flawIn(inner); flaw != "" {
				return flaw
			}
		}
	}
	return ""
}

func flawInText(text string) string {
	if !utf8.ValidString(text) {
		return "has a lone surrogate"
	}
	if strings.ContainsRune(text, 0) {
		return "has a NUL character"
	}
	return ""
}

// jsonReader stops at a text that is nested deeper than maxJSONDepth, overridden values included.
type jsonReader struct {
	text   string
	at     int
	isDeep bool
}

// container is an array or object that is not closed yet.
type container struct {
	items   []any
	members map[string]any
	key     string
}

func (r *jsonReader) read() (any, bool) {
	var open []*container
	for {
		value, opened, ok := r.value()
		if !ok {
			return nil, false
		}
		if opened != nil && len(open) == maxJSONDepth {
			r.isDeep = true
			return nil, false
		}
		if opened != nil && !r.closes(opened) {
			open = append(open, opened)
			if opened.members != nil && !r.key(opened) {
				return nil, false
			}
			continue
		}
		if opened != nil {
			value = opened.value()
		}
		for {
			if len(open) == 0 {
				r.skipSpace()
				return value, r.at == len(r.text)
			}
			innermost := open[len(open)-1]
			innermost.put(value)
			r.skipSpace()
			if r.take(',') {
				if innermost.members != nil && !r.key(innermost) {
					return nil, false
				}
				break
			}
			if !r.take(innermost.end()) {
				return nil, false
			}
			value = innermost.value()
			open = open[:len(open)-1]
		}
	}
}

func (c *container) value() any {
	if c.members != nil {
		return c.members
	}
	return c.items
}

func (c *container) put(value any) {
	if c.members != nil {
		c.members[c.key] = value
	} else {
		c.items = append(c.items, value)
	}
}

func (c *container) end() byte {
	if c.members != nil {
		return '}'
	}
	return ']'
}

// closes is whether a container that was opened just now is empty.
func (r *jsonReader) closes(opened *container) bool {
	r.skipSpace()
	return r.take(opened.end())
}

// key reads a key with its colon.
func (r *jsonReader) key(into *container) bool {
	r.skipSpace()
	key, ok := r.string()
	if !ok {
		return false
	}
	into.key = key
	r.skipSpace()
	return r.take(':')
}

var numberPattern = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?`)

// value reads a scalar, or the opening bracket of a container.
func (r *jsonReader) value() (scalar any, opened *container, ok bool) {
	r.skipSpace()
	rest := r.text[r.at:]
	switch {
	case r.take('['):
		return nil, &container{items: []any{}}, true
	case r.take('{'):
		return nil, &container{members: map[string]any{}}, true
	case strings.HasPrefix(rest, `"`):
		text, ok := r.string()
		return text, nil, ok
	case r.takeWord("true"):
		return true, nil, true
	case r.takeWord("false"):
		return false, nil, true
	case r.takeWord("null"):
		return nil, nil, true
	}
	number := numberPattern.FindString(rest)
	r.at += len(number)
	// An overflow is infinite, and refused as a flaw unless it is overridden.
	value, _ := strconv.ParseFloat(number, 64)
	return value, nil, number != ""
}

// string reads a text. A lone surrogate becomes the three bytes that UTF-8 would have for it, which are no valid UTF-8.
func (r *jsonReader) string() (string, bool) {
	if !r.take('"') {
		return "", false
	}
	var text []byte
	for r.at < len(r.text) {
		next := r.text[r.at]
		r.at++
		switch {
		case next == '"':
			return string(text), true
		case next < 0x20:
			return "", false
		case next != '\\':
			text = append(text, next)
		default:
			unescaped, ok := r.escape()
			if !ok {
				return "", false
			}
			text = append(text, unescaped...)
		}
	}
	return "", false
}

var shortEscapes = map[byte]string{
	'"': `"`, '\\': `\`, '/': `/`, 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t",
}

// escape reads what follows a backslash, with the second half of a pair of surrogates.
func (r *jsonReader) escape() (string, bool) {
	if r.at == len(r.text) {
		return "", false
	}
	letter := r.text[r.at]
	r.at++
	if letter != 'u' {
		text, ok := shortEscapes[letter]
		return text, ok
	}
	unit, ok := r.hexUnit()
	if !ok || !utf16.IsSurrogate(unit) {
		return string(unit), ok
	}
	before := r.at
	if r.takeWord(`\u`) {
		if second, ok := r.hexUnit(); ok {
			if pair := utf16.DecodeRune(unit, second); pair != utf8.RuneError {
				return string(pair), true
			}
		}
		r.at = before
	}
	return string([]byte{0xe0 | byte(unit>>12), 0x80 | byte(unit>>6)&0x3f, 0x80 | byte(unit)&0x3f}), true
}

func (r *jsonReader) hexUnit() (rune, bool) {
	if r.at+4 > len(r.text) {
		return 0, false
	}
	digits := r.text[r.at : r.at+4]
	if strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
		return 0, false
	}
	unit, err := strconv.ParseUint(digits, 16, 16)
	r.at += 4
	return rune(unit), err == nil
}

func (r *jsonReader) skipSpace() {
	for r.at < len(r.text) && strings.IndexByte(" \t\n\r", r.text[r.at]) >= 0 {
		r.at++
	}
}

func (r *jsonReader) take(char byte) bool {
	if r.at == len(r.text) || r.text[r.at] != char {
		return false
	}
	r.at++
	return true
}

func (r *jsonReader) takeWord(word string) bool {
	if !strings.HasPrefix(r.text[r.at:], word) {
		return false
	}
	r.at += len(word)
	return true
}
