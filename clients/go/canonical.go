package notificationintent

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// appendCanonical writes a value that parseJSON returned in canonical form (RFC 8785).
func appendCanonical(out []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(out, "null"...)
	case bool:
		return strconv.AppendBool(out, value)
	case string:
		return appendString(out, value)
	case float64:
		return appendNumber(out, value)
	case []any:
		out = append(out, '[')
		for at, inner := range value {
			if at > 0 {
				out = append(out, ',')
			}
			out = appendCanonical(out, inner)
		}
		return append(out, ']')
	case map[string]any:
		out = append(out, '{')
		for at, key := range slices.SortedFunc(maps.Keys(value), compareUTF16) {
			if at > 0 {
				out = append(out, ',')
			}
			out = append(appendString(out, key), ':')
			out = appendCanonical(out, value[key])
		}
		return append(out, '}')
	}
	panic(fmt.Sprintf("no JSON: %T", value))
}

// appendNumber writes a number as ECMAScript does.
func appendNumber(out []byte, number float64) []byte {
	if isSafeInteger(number) {
		return strconv.AppendInt(out, int64(number), 10)
	}
	if math.Abs(number) >= 1e-6 {
		return strconv.AppendFloat(out, number, 'f', -1, 64)
	}
	shortest := strconv.FormatFloat(number, 'e', -1, 64)
	return append(out, strings.Replace(shortest, "e-0", "e-", 1)...)
}

func appendString(out []byte, text string) []byte {
	out = append(out, '"')
	for _, char := range []byte(text) {
		switch char {
		case '"', '\\':
			out = append(out, '\\', char)
		case '\b':
			out = append(out, `\b`...)
		case '\f':
			out = append(out, `\f`...)
		case '\n':
			out = append(out, `\n`...)
		case '\r':
			out = append(out, `\r`...)
		case '\t':
			out = append(out, `\t`...)
		default:
			if char < 0x20 {
				out = fmt.Appendf(out, `\u%04x`, char)
			} else {
				out = append(out, char)
			}
		}
	}
	return append(out, '"')
}

// jsonArray is texts as the array that appendCanonical writes.
func jsonArray(texts []string) []any {
	values := make([]any, len(texts))
	for at, text := range texts {
		values[at] = text
	}
	return values
}

// compareUTF16 orders texts by their UTF-16 units, as canonical JSON wants it: other than by bytes, characters beyond
// U+FFFF come before those from U+E000.
func compareUTF16(left, right string) int {
	for left != "" && right != "" {
		a, aSize := utf8.DecodeRuneInString(left)
		b, bSize := utf8.DecodeRuneInString(right)
		if a != b {
			if (a > 0xffff) != (b > 0xffff) {
				return cmp.Compare(firstUnit(a), firstUnit(b))
			}
			return cmp.Compare(a, b)
		}
		left, right = left[aSize:], right[bSize:]
	}
	return cmp.Compare(len(left), len(right))
}

func firstUnit(char rune) rune {
	if high, _ := utf16.EncodeRune(char); high != utf8.RuneError {
		return high
	}
	return char
}

// marshal writes any value as JSON, with characters as they are.
func marshal(value any) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

func sha256Hex(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// CanonicalJSON is a JSON text in canonical form (RFC 8785), as [Intent.PayloadJSON] has it. It returns an error for a text
// that no intent could carry.
func CanonicalJSON(text string) (string, error) {
	value, problem := parseJSON(text)
	if problem != "" {
		return "", errors.New(problem)
	}
	return string(appendCanonical(nil, value)), nil
}
