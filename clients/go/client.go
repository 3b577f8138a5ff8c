// Package delayq is a client of delayq's HTTP API: give delayq a message now, have it delivered at the chosen millisecond.
//
//	client, err := delayq.New("http://127.0.0.1:8080")
//	scheduled, err := client.Schedule(ctx, delayq.Message{Topic: "orders.unpaid", Body: order, DelayTime: 30 * time.Minute})
//	result, err := client.Cancel(ctx, scheduled.ID)
//
// Every call is repeated after a lost answer, 429 and 503, until its context ends or GiveUpAfter is over. This is safe:
// a message has its id before the first attempt, and all other calls may be repeated.
package delayq

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	batchMessages = 1000
	batchBytes    = 4 << 20
	mostIDs       = 1000
	mostKeys      = 100
	// longestReceive is how long the server waits for a message at most.
	longestReceive = 30 * time.Second
)

type callName struct{}

// WithCall names the calls that are made with this context: 1 to 64 letters, digits, _ and -. A repeated Reschedule, DeliverNow or
// Redrive with the same name gets the first answer, also in another process. Without a name the client makes one for each call.
func WithCall(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callName{}, name)
}

// callOf is the name of a call, made before its first attempt.
func callOf(ctx context.Context) string {
	if name, found := ctx.Value(callName{}).(string); found {
		return name
	}
	return newID()
}

// Client calls one API. It is safe for concurrent use; one is enough for a process.
type Client struct {
	base        string
	apiKey      string
	http        *http.Client
	timeout     time.Duration
	giveUpAfter time.Duration
}

// Option changes how a Client works.
type Option func(*Client)

// WithAPIKey names the caller. An API on loopback needs no key.
func WithAPIKey(key string) Option { return func(c *Client) { c.apiKey = key } }

// WithHTTPClient sets what sends the requests. Default: http.DefaultClient.
func WithHTTPClient(client *http.Client) Option { return func(c *Client) { c.http = client } }

// WithTimeout bounds one attempt. Default: 10 s.
func WithTimeout(timeout time.Duration) Option { return func(c *Client) { c.timeout = timeout } }

// WithGiveUpAfter bounds all attempts of one call together. Default: 30 s.
func WithGiveUpAfter(limit time.Duration) Option { return func(c *Client) { c.giveUpAfter = limit } }

// New returns a client of the API at this URL.
func New(apiURL string, options ...Option) (*Client, error) {
	parsed, err := url.Parse(apiURL)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return nil, fmt.Errorf("delayq: the URL of the API begins with http:// or https://; %q does not", apiURL)
	}
	if parsed.User != nil {
		return nil, errors.New("delayq: give the key by WithAPIKey, not in the URL")
	}
	if parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, errors.New("delayq: the URL of the API has no query and no fragment")
	}
	client := &Client{
		base: strings.TrimRight(apiURL, "/"), http: http.DefaultClient, timeout: 10 * time.Second, giveUpAfter: 30 * time.Second,
	}
	for _, option := range options {
		option(client)
	}
	if strings.ContainsFunc(client.apiKey, func(one rune) bool { return one <= ' ' || one > '~' }) {
		return nil, errors.New("delayq: the key of the API has characters that no key has")
	}
	// A redirect is an error: the key is for this address alone, and a redirect may turn POST into GET.
	direct := *client.http
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client.http = &direct
	return client, nil
}

// Due says when a message is due: set exactly one field. To deliver at once, set Now.
type Due struct {
	DelayTime  time.Duration // from now, by the clock of the server
	ExpectDate time.Time     // at this time; the past means now
	DelayLevel int           // one of RocketMQ's levels, 1 (1 s) to 18 (2 h)
	Now        bool
}

// Message is a message to schedule. Body is a string, a []byte, or any value that encoding/json can write.
// The fields of Due are repeated here, so that a literal stays flat: set exactly one of them.
type Message struct {
	Topic       string
	Body        any
	DelayTime   time.Duration
	ExpectDate  time.Time
	DelayLevel  int
	Now         bool
	ID          string // your own; without one the client makes a UUID before the call
	Tags        string
	Keys        []string
	Properties  map[string]string
	OrderingKey string
	MaxAttempts int
	ExpireAfter time.Duration
	Window      time.Duration
	Again       bool
}

// Scheduled is a message that delayq has accepted. Created is false if an earlier attempt or call had scheduled it.
type Scheduled struct {
	ScheduledOut
	Created bool
}

// ScheduleResult is what became of one message of a batch: Err is nil if it was scheduled.
type ScheduleResult struct {
	Scheduled
	Err error
}

// Result is what became of one message. Result is for example cancelled, inFlight, notFound or delivered.
// Problem says why, if it failed.
type Result struct {
	ID      string
	Result  string
	Problem *ProblemOut
}

// KeyResult is what became of the messages of one business key.
type KeyResult struct {
	Key      string
	Messages []Result
	Problem  *ProblemOut
}

// Selection names messages by ids and business keys.
type Selection struct {
	IDs    []string
	Keys   []string
	Reason string // for the audit
	Force  bool   // of DeliverNowMany only: also what a pause or a limit holds
}

// Results has a Result for each id and a KeyResult for each key of a Selection, in their order.
type Results struct {
	IDs  []Result
	Keys []KeyResult
}

// Schedule schedules one message.
func (c *Client) Schedule(ctx context.Context, message Message) (Scheduled, error) {
	results, err := c.ScheduleMany(ctx, []Message{message})
	if err != nil {
		return Scheduled{}, err
	}
	return results[0].Scheduled, results[0].Err
}

// ScheduleMany schedules any number of messages; the client splits them. Results have the order of the messages.
// A message that fails stops no other one. The error is not nil only if a message cannot be written as JSON.
func (c *Client) ScheduleMany(ctx context.Context, messages []Message) ([]ScheduleResult, error) {
	requests := make([]batchItem, len(messages))
	for at, message := range messages {
		request, err := message.request()
		if err != nil {
			return nil, fmt.Errorf("delayq: message %d: %w", at, err)
		}
		requests[at] = request
	}
	results := make([]ScheduleResult, 0, len(messages))
	for _, batch := range split(requests) {
		results = append(results, c.scheduleBatch(ctx, batch)...)
	}
	return results, nil
}

func (c *Client) scheduleBatch(ctx context.Context, batch []batchItem) []ScheduleResult {
	items, err := sendItems(ctx, c, batch, func(open []batchItem) call {
		messages, ids := make([]json.RawMessage, len(open)), make([]string, len(open))
		for at, one := range open {
			messages[at], ids[at] = one.json, one.id
		}
		return call{method: "POST", path: "/v1/messages:batch", body: map[string]any{"messages": messages}, ids: ids}
	})
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Problem.Status == http.StatusRequestEntityTooLarge && len(batch) > 1 {
		half := len(batch) / 2
		return append(c.scheduleBatch(ctx, batch[:half]), c.scheduleBatch(ctx, batch[half:])...)
	}
	results := make([]ScheduleResult, len(batch))
	for at, one := range batch {
		results[at] = ScheduleResult{Scheduled: Scheduled{ScheduledOut: ScheduledOut{Id: one.id}}, Err: err}
		if err == nil {
			results[at] = items[at].scheduled(one.id)
		}
	}
	return results
}

// Get returns how a message stands. found is false if delayq does not know the id.
func (c *Client) Get(ctx context.Context, id string) (state StateOut, found bool, err error) {
	err = c.send(ctx, call{method: "GET", path: "/v1/messages/" + url.PathEscape(id)}, &state)
	if err == nil && !strings.HasPrefix(state.Id, id) { // an ordering key appends to the id
		return StateOut{}, false, errorOf(c.unknown(http.StatusOK, " answered 200 without an answer of delayq"), nil)
	}
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Kind() == "not-found" {
		return StateOut{}, false, nil
	}
	return state, err == nil, err
}

// Search yields the messages that match, the earliest first. Parameters: docs/http.md#search (topic, tags, state, dueFrom, …).
func (c *Client) Search(ctx context.Context, filter url.Values) iter.Seq2[StateOut, error] {
	return pages(ctx, c, "/v1/messages", filter, func(page FoundOut) ([]StateOut, *string) { return page.Messages, page.NextPageToken })
}

// DeadLetters yields dead letters. Parameters: docs/http.md#dead-letters (topic, reason, group, from, to, order).
func (c *Client) DeadLetters(ctx context.Context, filter url.Values) iter.Seq2[DeadLetterOut, error] {
	return pages(ctx, c, "/v1/dead-letters", filter, func(page DeadLettersOut) ([]DeadLetterOut, *string) { return page.DeadLetters, page.NextPageToken })
}

// Topics yields topics by name. Parameters: match, paused.
func (c *Client) Topics(ctx context.Context, filter url.Values) iter.Seq2[TopicOut, error] {
	return pages(ctx, c, "/v1/topics", filter, func(page TopicsOut) ([]TopicOut, *string) { return page.Topics, page.NextPageToken })
}

// Consumers yields consumer groups by topic and name: how many messages each has not acknowledged, and the oldest. Parameter: match.
func (c *Client) Consumers(ctx context.Context, filter url.Values) iter.Seq2[GroupOut, error] {
	return pages(ctx, c, "/v1/consumers", filter, func(page GroupsOut) ([]GroupOut, *string) { return page.Groups, page.NextPageToken })
}

// Audit yields who changed what, the newest first.
func (c *Client) Audit(ctx context.Context, filter url.Values) iter.Seq2[AuditEntryOut, error] {
	return pages(ctx, c, "/v1/audit", filter, func(page AuditOut) ([]AuditEntryOut, *string) { return page.Entries, page.NextPageToken })
}

// Cancel cancels one message. cancelled: it is never delivered. inFlight: it is removed, but it may be or have been delivered.
// All other results say why there is nothing to cancel: delivered, dead, discarded, notFound.
func (c *Client) Cancel(ctx context.Context, id string) (Result, error) {
	results, err := c.CancelMany(ctx, Selection{IDs: []string{id}})
	if err != nil {
		return Result{ID: id}, err
	}
	return results.IDs[0], nil
}

// CancelMany cancels messages by ids and business keys.
func (c *Client) CancelMany(ctx context.Context, selection Selection) (Results, error) {
	return c.change(ctx, "/v1/messages:cancel", selection, "")
}

// Reschedule gives a message another due time. It is a *RefusedError with status 409 if the message may be on its way or has ended.
func (c *Client) Reschedule(ctx context.Context, id string, due Due) (scheduled ScheduledOut, err error) {
	body, err := due.fields()
	if err != nil {
		return scheduled, err
	}
	body["call"] = callOf(ctx)
	err = c.send(ctx, call{method: "PATCH", path: "/v1/messages/" + url.PathEscape(id), body: body, ids: []string{id}}, &scheduled)
	return scheduled, err
}

// DeliverNow delivers a message now. force also delivers a message that a pause or a limit holds.
func (c *Client) DeliverNow(ctx context.Context, id string, force bool) (scheduled ScheduledOut, err error) {
	path := "/v1/messages/" + url.PathEscape(id) + ":deliverNow"
	err = c.send(ctx, call{method: "POST", path: path, body: map[string]any{"force": force, "call": callOf(ctx)}, ids: []string{id}}, &scheduled)
	return scheduled, err
}

// DeliverNowMany delivers messages now, by ids and business keys.
func (c *Client) DeliverNowMany(ctx context.Context, selection Selection) (Results, error) {
	return c.change(ctx, "/v1/messages:deliverNow", selection, callOf(ctx))
}

// Redrive puts dead letters back: they are due now.
func (c *Client) Redrive(ctx context.Context, ids ...string) ([]Result, error) {
	results, err := c.change(ctx, "/v1/dead-letters:redrive", Selection{IDs: ids}, callOf(ctx))
	return results.IDs, err
}

// Discard deletes dead letters for good.
func (c *Client) Discard(ctx context.Context, ids ...string) ([]Result, error) {
	results, err := c.change(ctx, "/v1/dead-letters:discard", Selection{IDs: ids}, "")
	return results.IDs, err
}

// Receive leases messages of a topic to this call, as a consumer of a group. The answer is empty if nothing arrived within
// request.Wait. The route of the topic must be a stream of delayq's own Redis.
func (c *Client) Receive(ctx context.Context, topic string, request ReceiveIn) ([]Leased, error) {
	if request.Call == nil {
		call := newID() // before the call, so that a repeated one leases nothing else
		request.Call = &call
	}
	var answer ReceivedOut
	err := c.send(ctx, call{method: "POST", path: verb(topic, "receive"), body: request, extra: waitOf(request.Wait)}, &answer)
	messages := make([]Leased, len(answer.Messages))
	for at, one := range answer.Messages {
		if one.Lease == "" {
			return nil, errorOf(c.unknown(http.StatusOK, " answered 200 without an answer of delayq"), nil)
		}
		messages[at] = leased(one)
	}
	return messages, err
}

// Ack acknowledges messages: the group does not receive them again. The result lost means that another consumer may have one.
func (c *Client) Ack(ctx context.Context, topic string, leases LeasesIn) ([]LeaseOut, error) {
	return settle(ctx, c, verb(topic, "ack"), leases.Messages, func(open []LeaseIn) any {
		leases.Messages = open
		return leases
	})
}

// Extend lets leases end later. A Lease of 0 releases the messages unhandled.
func (c *Client) Extend(ctx context.Context, topic string, leases ExtendIn) ([]LeaseOut, error) {
	return settle(ctx, c, verb(topic, "extend"), leases.Messages, func(open []LeaseIn) any {
		leases.Messages = open
		return leases
	})
}

// HandBack hands messages back: the group receives them again later, each time later than before, or after DelayTime.
func (c *Client) HandBack(ctx context.Context, topic string, messages HandBackIn) ([]LeaseOut, error) {
	return settle(ctx, c, verb(topic, "handBack"), messages.Messages, func(open []HandedBackIn) any {
		messages.Messages = open
		return messages
	})
}

// HandBackOptions say why messages are handed back, and when they are delivered again; by default each time later.
type HandBackOptions struct {
	Reason    string
	DelayTime time.Duration
}

// HandBackDelivered hands back messages that Kafka, RocketMQ, RabbitMQ or a webhook delivered, at most 1,000: each is delivered
// again later. Acknowledge them in their broker then. The state is dead after too many hand-backs.
func (c *Client) HandBackDelivered(ctx context.Context, options HandBackOptions, messages ...*Received) ([]ScheduleResult, error) {
	items, err := sendItems(ctx, c, messages, func(open []*Received) call {
		requests := make([]map[string]any, len(open))
		for at, one := range open {
			requests[at] = one.handBack(options)
		}
		return call{method: "POST", path: "/v1/messages:handBack", body: map[string]any{"messages": requests}}
	})
	if err != nil {
		return nil, err
	}
	results := make([]ScheduleResult, len(items))
	for at, one := range items {
		results[at] = one.scheduled(messages[at].ID)
	}
	return results, nil
}

func settle[T any](ctx context.Context, c *Client, path string, leases []T, body func([]T) any) ([]LeaseOut, error) {
	items, err := sendItems(ctx, c, leases, func(open []T) call { return call{method: "POST", path: path, body: body(open)} })
	results := make([]LeaseOut, len(items))
	for at, one := range items {
		results[at] = LeaseOut{Id: one.Id, Status: int64(one.Status), Until: one.Until, Problem: one.Problem}
		if one.Result != "" {
			results[at].Result = &one.Result
		}
	}
	return results, err
}

func verb(topic, name string) string { return "/v1/topics/" + url.PathEscape(topic) + ":" + name }

// PauseTopics pauses the topics that match. It waits up to wait until nothing of them can arrive any more.
func (c *Client) PauseTopics(ctx context.Context, pause PauseIn, wait time.Duration) (paused PausedOut, err error) {
	query := url.Values{"wait": {duration(wait)}}
	err = c.send(ctx, call{method: "POST", path: "/v1/topics:pause", query: query, body: pause, extra: wait}, &paused)
	return paused, err
}

// ResumeTopics ends the pause with this pattern. With a Rate, held messages come back at most so fast (messages a second).
func (c *Client) ResumeTopics(ctx context.Context, resume ResumeIn) (resumed ResumedOut, err error) {
	err = c.send(ctx, call{method: "POST", path: "/v1/topics:resume", body: resume}, &resumed)
	return resumed, err
}

// PutPolicy creates or replaces a policy.
func (c *Client) PutPolicy(ctx context.Context, name string, policy PolicyIn) (changed PolicyChangedOut, err error) {
	err = c.send(ctx, call{method: "PUT", path: "/v1/policies/" + url.PathEscape(name), body: policy}, &changed)
	return changed, err
}

// DeletePolicy removes a policy.
func (c *Client) DeletePolicy(ctx context.Context, name string) (changed PolicyChangedOut, err error) {
	err = c.send(ctx, call{method: "DELETE", path: "/v1/policies/" + url.PathEscape(name)}, &changed)
	return changed, err
}

// Read reads any other endpoint, such as /v1/overview, into an answer of this package, such as *OverviewOut.
func (c *Client) Read(ctx context.Context, path string, query url.Values, answer any) error {
	return c.send(ctx, call{method: "GET", path: path, query: query}, answer)
}

func (c *Client) change(ctx context.Context, path string, selection Selection, name string) (Results, error) {
	var results Results
	request := func(field string, values []string) call {
		body := map[string]any{field: values}
		if selection.Reason != "" {
			body["reason"] = selection.Reason
		}
		if selection.Force {
			body["force"] = true
		}
		if name != "" {
			body["call"] = name
		}
		return call{method: "POST", path: path, body: body}
	}
	for ids := range chunks(selection.IDs, mostIDs) {
		items, err := sendItems(ctx, c, ids, func(open []string) call {
			made := request("ids", open)
			made.ids = open
			return made
		})
		if err != nil {
			return results, err
		}
		for at, item := range items {
			results.IDs = append(results.IDs, item.result(ids[at]))
		}
	}
	for keys := range chunks(selection.Keys, mostKeys) {
		items, err := sendItems(ctx, c, keys, func(open []string) call { return request("keys", open) })
		if err != nil {
			return results, err
		}
		for at, item := range items {
			found := KeyResult{Key: keys[at], Problem: item.Problem}
			for _, one := range item.Messages {
				found.Messages = append(found.Messages, one.result(""))
			}
			results.Keys = append(results.Keys, found)
		}
	}
	return results, nil
}

type batchItem struct {
	id   string
	json json.RawMessage
}

func (m Message) request() (batchItem, error) {
	fields, err := Due{DelayTime: m.DelayTime, ExpectDate: m.ExpectDate, DelayLevel: m.DelayLevel, Now: m.Now}.fields()
	if err != nil {
		return batchItem{}, err
	}
	id := m.ID
	if id == "" {
		id = newID()
	}
	fields["id"], fields["topic"] = id, m.Topic
	switch body := m.Body.(type) {
	case nil:
	case []byte:
		fields["bodyBase64"] = base64.StdEncoding.EncodeToString(body)
	case string:
		if utf8.ValidString(body) {
			fields["body"] = body
		} else { // encoding/json would change it
			fields["bodyBase64"] = []byte(body)
		}
	default:
		fields["body"] = body
	}
	for name, value := range map[string]string{"tags": m.Tags, "orderingKey": m.OrderingKey} {
		if value != "" {
			fields[name] = value
		}
	}
	for name, value := range map[string]time.Duration{"expireAfter": m.ExpireAfter, "window": m.Window} {
		if value != 0 {
			fields[name] = duration(value)
		}
	}
	if len(m.Keys) > 0 {
		fields["keys"] = m.Keys
	}
	if len(m.Properties) > 0 {
		fields["properties"] = m.Properties
	}
	if m.MaxAttempts != 0 {
		fields["maxAttempts"] = m.MaxAttempts
	}
	if m.Again {
		fields["again"] = true
	}
	written, err := marshal(fields)
	return batchItem{id: id, json: written}, err
}

func (d Due) fields() (map[string]any, error) {
	fields := map[string]any{}
	if d.DelayTime != 0 || d.Now {
		fields["delayTime"] = duration(d.DelayTime)
	}
	if !d.ExpectDate.IsZero() {
		fields["expectDate"] = d.ExpectDate.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	if d.DelayLevel != 0 {
		fields["delayLevel"] = d.DelayLevel
	}
	if len(fields) != 1 || (d.Now && d.DelayTime != 0) {
		return nil, errors.New("set exactly one of DelayTime, ExpectDate, DelayLevel and Now")
	}
	return fields, nil
}

// waitOf is how long the server may wait. Texts that only the server reads, such as PT20S, may be its longest wait.
func waitOf(text *string) time.Duration {
	if text == nil {
		return 0
	}
	wait, err := time.ParseDuration(*text)
	if err != nil || wait > longestReceive {
		return longestReceive
	}
	return max(wait, 0)
}

func duration(value time.Duration) string { return fmt.Sprintf("%dms", value.Milliseconds()) }

// newID makes a UUID, version 4.
func newID() string {
	var bytes [16]byte
	if _, err := rand.Read(bytes[:]); err != nil {
		panic(err) // the system gives no randomness: nothing can be made safely
	}
	bytes[6], bytes[8] = bytes[6]&0x0f|0x40, bytes[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", bytes[0:4], bytes[4:6], bytes[6:8], bytes[8:10], bytes[10:])
}

func split(requests []batchItem) [][]batchItem {
	var batches [][]batchItem
	begin, size := 0, 0
	for at, one := range requests {
		if at > begin && (at-begin == batchMessages || size+len(one.json) > batchBytes) {
			batches = append(batches, requests[begin:at])
			begin, size = at, 0
		}
		size += len(one.json) + 1
	}
	if begin < len(requests) {
		batches = append(batches, requests[begin:])
	}
	return batches
}

func chunks(values []string, size int) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for len(values) > 0 {
			count := min(size, len(values))
			if !yield(values[:count]) {
				return
			}
			values = values[count:]
		}
	}
}
