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
	"reflect"
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
	return strings.TrimPrefix(e.Problem.Type, problemPrefix)
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

// isPassing reports whether an error means that the API is away or busy, so that a later call may succeed.
func isPassing(err error) bool {
	var unavailable *UnavailableError
	var refused *RefusedError
	if errors.As(err, &refused) {
		return isPassingProblem(&refused.Problem)
	}
	return errors.As(err, &unavailable)
}

func isPassingProblem(problem *ProblemOut) bool {
	return problem.Status == http.StatusTooManyRequests || problem.Status >= 500
}

type call struct {
	method, path string
	query        url.Values
	body         any
	ids          []string
	extra        time.Duration // how long the server may wait before it answers
	results      int           // an answer with results has so many
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
	return sleep(ctx, pause)
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
		written, err := marshal(request.body)
		if err != nil {
			return fmt.Errorf("delayq: %w", err)
		}
		body = written
	}
	for {
		arrived, err := c.attempt(ctx, request, body)
		var problem *ProblemOut
		if err == nil {
			if problem = c.read(arrived, request, answer); problem == nil {
				return nil
			}
			if !isRepeated(arrived.status) {
				return errorOf(problem, request.ids)
			}
		}
		if ctx.Err() == nil && tries.next(ctx, arrived.retryAfter) {
			continue
		}
		if err != nil || ctx.Err() != nil {
			return &UnavailableError{IDs: request.ids, Err: errors.Join(ctx.Err(), err)}
		}
		return errorOf(problem, request.ids)
	}
}

// response is an answer as it arrived.
type response struct {
	status                int
	contentType, location string
	text                  []byte
	retryAfter            time.Duration
}

func (c *Client) attempt(ctx context.Context, request call, body []byte) (answer response, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+request.extra)
	defer cancel()
	address := c.base + request.path
	if len(request.query) > 0 {
		address += "?" + request.query.Encode()
	}
	made, err := http.NewRequestWithContext(ctx, request.method, address, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	made.Header.Set("Accept", "application/json")
	if body != nil {
		made.Header.Set("Content-Type", "application/json")
	}
	if c.apiKey != "" {
		made.Header.Set("Authorization", "Bearer "+c.apiKey)
	}
	arrived, err := c.http.Do(made)
	if err != nil {
		return answer, err
	}
	defer arrived.Body.Close()
	answer.status, answer.contentType = arrived.StatusCode, arrived.Header.Get("Content-Type")
	answer.location = arrived.Header.Get("Location")
	seconds, _ := strconv.Atoi(arrived.Header.Get("Retry-After"))
	answer.retryAfter = time.Duration(seconds) * time.Second
	answer.text, err = io.ReadAll(arrived.Body)
	return answer, err
}

// mostLocation is how much of the target of a redirect an error names.
const mostLocation = 200

// read fills the answer. It returns the problem that stands in its place, also if delayq did not write what arrived: a proxy, a
// login page or another service may stand at the URL.
func (c *Client) read(found response, request call, answer any) *ProblemOut {
	// JSON may come without a type, or as plain text; a page of HTML is no answer, whatever is in it.
	kind := strings.ToLower(found.contentType)
	isJSON := kind == "" || strings.Contains(kind, "json") || strings.HasPrefix(kind, "text/plain")
	if found.status >= 200 && found.status < 300 {
		if isJSON && isAnswer(found.text, request.results, answer) {
			return nil
		}
		return c.unknown(found.status, fmt.Sprintf(" answered %d without an answer of delayq", found.status))
	}
	var problem ProblemOut
	if isJSON && json.Unmarshal(found.text, &problem) == nil && isProblem(&problem) {
		if found.status == http.StatusNotFound && strings.HasPrefix(problem.Detail, "Unknown path") {
			return c.unknown(found.status, " has no such path")
		}
		if problem.Status == 0 {
			problem.Status = int64(found.status)
		}
		return &problem
	}
	if found.status >= 500 || found.status == http.StatusTooManyRequests { // a proxy before the API
		detail := fmt.Sprintf("%s answered %d", c.base, found.status)
		return &ProblemOut{Type: problemPrefix + "unavailable", Title: "Unavailable", Status: int64(found.status), Detail: detail}
	}
	if found.status >= 300 && found.status < 400 && found.location != "" {
		// The key is for this address alone, and a redirect may turn POST into GET.
		there := found.location[:min(len(found.location), mostLocation)]
		return c.unknown(found.status, fmt.Sprintf(" answered %d, a redirect to '%s', which delayq does not follow", found.status, there))
	}
	return c.unknown(found.status, fmt.Sprintf(" answered %d without a problem of delayq", found.status))
}

const problemPrefix = "urn:delayq:problem:"

func isProblem(problem *ProblemOut) bool {
	return problem.Detail != "" && strings.HasPrefix(problem.Type, problemPrefix)
}

func (c *Client) unknown(status int, what string) *ProblemOut {
	detail := c.base + what + ": is this the URL of its API?"
	return &ProblemOut{Type: problemPrefix + "unknown", Title: "Unknown answer", Status: int64(status), Detail: detail}
}

// isAnswer fills the answer. It is false if the text has another form, none of the answer's required fields, or not all of its lists.
func isAnswer(text []byte, results int, answer any) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil || json.Unmarshal(text, answer) != nil {
		return false
	}
	value := reflect.ValueOf(answer).Elem()
	if value.Kind() != reflect.Struct {
		return len(fields) > 0
	}
	has := false
	for at := range value.NumField() {
		name, option, _ := strings.Cut(value.Type().Field(at).Tag.Get("json"), ",")
		if option != "" || name == "" {
			continue
		}
		given := fields[name]
		has = has || given != nil
		if list := value.Field(at); list.Kind() == reflect.Slice && (list.IsNil() || name == "results" && list.Len() != results) {
			return false
		}
	}
	return has && hasIDs(fields)
}

// hasIDs is false if an item of a list that the client uses has neither an id nor a key nor a problem.
func hasIDs(fields map[string]json.RawMessage) bool {
	for _, name := range []string{"results", "messages"} {
		var items []struct {
			ID      string      `json:"id"`
			Key     string      `json:"key"`
			Problem *ProblemOut `json:"problem"`
		}
		if fields[name] != nil && json.Unmarshal(fields[name], &items) != nil {
			return false
		}
		for _, one := range items {
			if one.ID == "" && one.Key == "" && (one.Problem == nil || !isProblem(one.Problem)) {
				return false
			}
		}
	}
	return true
}

// errorOf is the error for a problem.
func errorOf(problem *ProblemOut, ids []string) error {
	switch problem.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &UnavailableError{Problem: problem, IDs: ids}
	}
	return &RefusedError{Problem: *problem, IDs: ids}
}

// marshal writes a value as JSON. Unlike json.Marshal it leaves <, > and & as they are, also in a json.RawMessage.
func marshal(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// item is one answer of a batch.
type item struct {
	ScheduledOut
	Status   int         `json:"status"`
	Result   string      `json:"result"`
	Key      string      `json:"key"`
	Messages []item      `json:"messages"`
	Until    *string     `json:"until"`
	Problem  *ProblemOut `json:"problem"`
}

func (i item) scheduled(id string) ScheduleResult {
	if i.Problem == nil {
		return ScheduleResult{Scheduled: Scheduled{ScheduledOut: i.ScheduledOut, Created: i.Status == http.StatusCreated}}
	}
	return ScheduleResult{Scheduled: Scheduled{ScheduledOut: ScheduledOut{Id: id}}, Err: errorOf(i.Problem, []string{id})}
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
		made := request(open)
		made.results = len(open)
		if err := c.sendWithin(ctx, tries, made, &answer); err != nil {
			return nil, err
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
