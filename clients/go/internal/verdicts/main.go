// Command verdicts says of each entry on its input what this client makes of it: the hard test of the repository compares
// that with the service.
//
// A line in is {"fields":[[name,value],…]}, both base64; a line out {"fingerprint":…}, with expires_at_ms and a traceparent if there are, or {"code":…,"names":…}.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	intents "github.com/galaxy-notify/galaxy-notify/clients/go"
)

type verdict struct {
	Fingerprint string              `json:"fingerprint,omitempty"`
	Code        intents.FailureCode `json:"code,omitempty"`
	Names       string              `json:"names,omitempty"`
	DeliverAtMs int64               `json:"deliver_at_ms,omitempty"`
	ExpiresAtMs int64               `json:"expires_at_ms,omitempty"`
	TraceParent string              `json:"traceparent,omitempty"`
}

func verdictOf(line []byte) (verdict, error) {
	var question struct{ Fields [][2][]byte }
	if err := json.Unmarshal(line, &question); err != nil {
		return verdict{}, err
	}
	fields := make([]intents.Field, len(question.Fields))
	for at, field := range question.Fields {
		fields[at] = intents.Field{Name: string(field[0]), Value: string(field[1])}
	}
	intent, err := intents.ParseEntry(fields)
	var refusal *intents.InvalidIntentError
	if errors.As(err, &refusal) {
		names := refusal.Field
		if names == "" {
			names = "the entry"
		}
		return verdict{Code: refusal.Code, Names: names}, nil
	}
	accepted := verdict{Fingerprint: intent.Fingerprint(), TraceParent: intent.TraceParent()}
	if at := intent.DeliverAt(); !at.IsZero() {
		accepted.DeliverAtMs = at.UnixMilli()
	}
	if at := intent.ExpiresAt(); !at.IsZero() {
		accepted.ExpiresAtMs = at.UnixMilli()
	}
	return accepted, err
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		answer, err := verdictOf(line)
		if err == nil {
			err = out.Encode(answer)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
