package delayq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// RefusedError is returned when the API refuses a call. Problem says why, and what to do.
type RefusedError struct {
	Problem ProblemOut
	IDs     []string // of the messages that the call was about
}

func (e *RefusedError) Error() string {
	if e.Problem.Field != nil {
		return fmt.Sprintf("delayq: %s (%s)", e.Problem.Detail, *e.Problem.Field)
	}
	return "delayq: " + e.Problem.Detail
}

// Kind is the end of the problem's type: invalid, conflict, not-found, forbidden, …
func (e *RefusedError) Kind() string {
	return strings.TrimPrefix(e.Problem.Type, "urn:delayq:problem:")
}

// UnavailableError is returned when the API gave no final answer in time. The outcome of the last attempt may be unknown.
// Repeat the call; for messages, with these IDs. Problem is the last one that the API answered, or nil.
type UnavailableError struct {
	Problem *ProblemOut
	IDs     []string
	Err     error
}

func (e *UnavailableError) Error() string {
	if e.Problem != nil {
		return "delayq: " + e.Problem.Detail
	}
	return "delayq: no answer: " + e.Err.Error()
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// IsStatus reports whether the API refused a call with this HTTP status.
func IsStatus(err error, status int) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && int(refused.Problem.Status) == status
}

type call struct {
	method, path string
	query        url.Values
	body         any
	ids          []string
	extra        time.Duration // how long the server may wait before it answers
}

// attempts says how long a call may still go on, and waits between its attempts.
type attempts struct {
	end   time.Time
	pause time.Duration
}

func (c *Client) attempts() *attempts {
	return &attempts{end: time.Now().Add(c.giveUpAfter), pause: 100 * time.Millisecond}
}

// next waits before the next attempt. It is false if the time or the context ends before that.
func (a *attempts) next(ctx context.Context, retryAfter time.Duration) bool {
	pause := max(retryAfter, a.pause/2+rand.N(a.pause/2))
	a.pause = min(2*a.pause, 5*time.Second)
	if time.Now().Add(pause).After(a.end) {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func isRepeated(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

func (c *Client) send(ctx context.Context, request call, answer any) error {
	return c.sendWithin(ctx, c.attempts(), request, answer)
}

func (c *Client) sendWithin(ctx context.Context, tries *attempts, request call, answer any) error {
	var body []byte
	if request.body != nil {
		written, err := json.Marshal(request.body)
		if err != nil {
			return fmt.Errorf("delayq: %w", err)
		}
		body = written
	}
	for {
		status, text, retryAfter, err := c.attempt(ctx, request, body)
		if err == nil && status < 300 {
			return json.Unmarshal(text, answer)
		}
		if err == nil && !isRepeated(status) {
			return &RefusedError{Problem: problemOf(status, text), IDs: request.ids}
		}
		if ctx.Err() == nil && tries.next(ctx, retryAfter) {
			continue
		}
		if err != nil || ctx.Err() != nil {
			return &UnavailableError{IDs: request.ids, Err: errors.Join(ctx.Err(), err)}
		}
		problem := problemOf(status, text)
		if status == http.StatusTooManyRequests {
			return &RefusedError{Problem: problem, IDs: request.ids}
		}
		return &UnavailableError{Problem: &problem, IDs: request.ids}
	}
}

func (c *Client) attempt(ctx context.Context, request call, body []byte) (int, []byte, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+request.extra)
	defer cancel()
	address := c.base + request.path
	if len(request.query) > 0 {
		address += "?" + request.query.Encode()
	}
	made, err := http.NewRequestWithContext(ctx, request.method, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, 0, err
	}
	made.Header.Set("Accept", "application/json")
	if body != nil {
		made.Header.Set("Content-Type", "application/json")
	}
	if c.apiKey != "" {
		made.Header.Set("Authorization", "Bearer "+c.apiKey)
	}
	response, err := c.http.Do(made)
	if err != nil {
		return 0, nil, 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return response.StatusCode, text, time.Duration(seconds) * time.Second, err
}

func problemOf(status int, text []byte) ProblemOut {
	var problem ProblemOut
	if json.Unmarshal(text, &problem) == nil && problem.Detail != "" {
		return problem
	}
	detail := fmt.Sprintf("The server answered %d without a problem of delayq; is this the URL of its API?", status)
	return ProblemOut{Type: "urn:delayq:problem:unknown", Title: "Unknown answer", Status: problem.Status, Detail: detail}
}

// item is one answer of a batch.
type item struct {
	ScheduledOut
	Status   int         `json:"status"`
	Result   string      `json:"result"`
	Key      string      `json:"key"`
	Messages []item      `json:"messages"`
	Problem  *ProblemOut `json:"problem"`
}

func (i item) scheduled(id string) ScheduleResult {
	if i.Problem == nil {
		return ScheduleResult{Scheduled: Scheduled{ScheduledOut: i.ScheduledOut, Created: i.Status == http.StatusCreated}}
	}
	result := ScheduleResult{Scheduled: Scheduled{ScheduledOut: ScheduledOut{Id: id}}}
	if int(i.Problem.Status) == http.StatusServiceUnavailable {
		result.Err = &UnavailableError{Problem: i.Problem, IDs: []string{id}}
	} else {
		result.Err = &RefusedError{Problem: *i.Problem, IDs: []string{id}}
	}
	return result
}

func (i item) result(id string) Result {
	if i.Id != "" {
		id = i.Id
	}
	return Result{ID: id, Result: i.Result, Problem: i.Problem}
}

// sendItems returns one answer for each item, in their order. Items that are answered with 429 or 503 are sent again while there is time.
func sendItems[T any](ctx context.Context, c *Client, items []T, request func([]T) call) ([]item, error) {
	tries := c.attempts()
	answers := make([]item, len(items))
	places := make([]int, len(items))
	for at := range items {
		places[at] = at
	}
	for {
		open := make([]T, len(places))
		for at, place := range places {
			open[at] = items[place]
		}
		var answer struct {
			Results []item `json:"results"`
		}
		if err := c.sendWithin(ctx, tries, request(open), &answer); err != nil {
			return nil, err
		}
		if len(answer.Results) != len(open) {
			return nil, &UnavailableError{Err: fmt.Errorf("%d results for %d items", len(answer.Results), len(open))}
		}
		var again []int
		for at, one := range answer.Results {
			answers[places[at]] = one
			if one.Problem != nil && isRepeated(int(one.Problem.Status)) {
				again = append(again, places[at])
			}
		}
		if len(again) == 0 || !tries.next(ctx, 0) {
			return answers, nil
		}
		places = again
	}
}

func pages[Page, Item any](
	ctx context.Context, c *Client, path string, filter url.Values, read func(Page) ([]Item, *string),
) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		query := url.Values{}
		for name, values := range filter {
			query[name] = values
		}
		for {
			var page Page
			if err := c.send(ctx, call{method: "GET", path: path, query: query}, &page); err != nil {
				var none Item
				yield(none, err)
				return
			}
			items, next := read(page)
			for _, one := range items {
				if !yield(one, nil) {
					return
				}
			}
			if next == nil || *next == "" {
				return
			}
			query.Set("pageToken", *next)
		}
	}
}
