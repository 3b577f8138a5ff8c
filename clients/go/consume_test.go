package delayq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

type verbCall struct {
	Verb string
	Body struct {
		Call, Wait, Lease string
		Max               int
		Messages          []struct{ ID, Reason string }
	}
}

func (c verbCall) ids() (ids []string) {
	for _, one := range c.Body.Messages {
		ids = append(ids, one.ID)
	}
	return ids
}

// fakeTopic is a topic with messages, whose API answers each verb by answers, else as delayq does.
type fakeTopic struct {
	url     string
	mutex   sync.Mutex
	changed *sync.Cond
	calls   []verbCall
	ready   []string
	answers map[string][]func(asked, http.ResponseWriter)
}

func newTopic(t *testing.T, messages ...string) *fakeTopic {
	t.Helper()
	topic := &fakeTopic{ready: messages, answers: map[string][]func(asked, http.ResponseWriter){}}
	topic.changed = sync.NewCond(&topic.mutex)
	server := httptest.NewServer(http.HandlerFunc(topic.serve))
	t.Cleanup(server.Close)
	topic.url = server.URL
	return topic
}

func (f *fakeTopic) serve(writer http.ResponseWriter, request *http.Request) {
	_, verb, _ := strings.Cut(request.URL.Path, ":")
	call := verbCall{Verb: verb}
	_ = json.NewDecoder(request.Body).Decode(&call.Body)
	f.mutex.Lock()
	f.calls = append(f.calls, call)
	f.changed.Broadcast()
	var answer func(asked, http.ResponseWriter)
	if left := f.answers[verb]; len(left) > 0 {
		answer, f.answers[verb] = left[0], left[1:]
	}
	var given []string
	if answer == nil && verb == "receive" {
		count := min(call.Body.Max, len(f.ready))
		given, f.ready = f.ready[:count], f.ready[count:]
	}
	f.mutex.Unlock()
	results := map[string]string{"ack": "acknowledged", "handBack": "handedBack", "extend": "extended"}
	switch {
	case answer != nil:
		answer(asked{}, writer)
	case verb == "receive":
		if len(given) == 0 && call.Body.Wait != "0ms" {
			<-request.Context().Done() // until the caller goes
			return
		}
		fmt.Fprintf(writer, `{"messages":[%s]}`, strings.Join(given, ","))
	default:
		texts := []string{}
		for _, id := range call.ids() {
			texts = append(texts, fmt.Sprintf(`{"id":%q,"status":200,"result":%q}`, id, results[verb]))
		}
		fmt.Fprintf(writer, `{"results":[%s]}`, strings.Join(texts, ","))
	}
}

// seen returns the calls of a verb, after there are at least so many.
func (f *fakeTopic) seen(verb string, count int) []verbCall {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for {
		found := slices.DeleteFunc(slices.Clone(f.calls), func(one verbCall) bool { return one.Verb != verb })
		if len(found) >= count {
			return found
		}
		f.changed.Wait()
	}
}

func (f *fakeTopic) idsOf(verb string) (ids []string) {
	for _, one := range f.seen(verb, 0) {
		ids = append(ids, one.ids()...)
	}
	slices.Sort(ids)
	return ids
}

func message(id, key string) string {
	return fmt.Sprintf(`{"id":%q,"topic":"t","lease":"lease of %s","dueMs":1,"attempt":1,"deliveries":1,"handBacks":0,"orderingKey":%q}`, id, id, key)
}

// consume consumes until something has happened, and returns the warnings.
func consume(t *testing.T, topic *fakeTopic, handler Handler, until func(), options ConsumeOptions) []string {
	t.Helper()
	var text bytes.Buffer
	options.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- client(t, topic.url, WithGiveUpAfter(0)).Consume(ctx, "t", "mail", handler, options)
	}()
	until()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(text.String(), "\n"), func(line string) bool { return line == "" })
}

func lost(id string) func(asked, http.ResponseWriter) {
	return says(200, fmt.Sprintf(`{"results":[{"id":%q,"status":409,"result":"lost"}]}`, id))
}

func TestMessagesAreAcknowledgedAndThoseWhoseHandlerFailsAreHandedBack(t *testing.T) {
	topic := newTopic(t, message("a", ""), message("error", ""), message("panic", ""), message("nil", ""), message("exit", ""), message("long", ""), message("z", ""))
	handler := func(_ context.Context, message *Leased) error {
		switch message.Id {
		case "error":
			return errors.New("no\n stock")
		case "panic":
			var none *Leased
			_ = none.Id
		case "nil":
			panic(nil)
		case "exit":
			runtime.Goexit()
		case "long":
			return errors.New(strings.Repeat("😀", 201) + "\xff")
		}
		return nil
	}
	consume(t, topic, handler, func() { topic.seen("handBack", 5) }, ConsumeOptions{})
	equal(t, topic.idsOf("ack"), []string{"a", "z"})
	reasons := map[string]string{}
	for _, one := range topic.seen("handBack", 0) {
		reasons[one.Body.Messages[0].ID] = one.Body.Messages[0].Reason
	}
	equal(t, reasons["error"], "no stock")
	equal(t, reasons["panic"], "panic: runtime error: invalid memory address or nil pointer dereference")
	equal(t, strings.HasPrefix(reasons["nil"], "panic: "), true)
	equal(t, reasons["exit"], "the handler ended its goroutine")
	equal(t, reasons["long"], strings.Repeat("😀", 200))
}

func TestLeasesOfAllMessagesAreRenewedByOneCallWhileHandlersRunAndNotAfterTheEnd(t *testing.T) {
	before := runtime.NumGoroutine()
	topic := newTopic(t, message("a", ""), message("b", ""), message("behind", "k"), message("after", "k"))
	handler := func(context.Context, *Leased) error { topic.seen("extend", 3); return nil }
	consume(t, topic, handler, func() { topic.seen("ack", 1) }, ConsumeOptions{Lease: 30 * time.Millisecond})
	first := topic.seen("extend", 1)[0]
	equal(t, first.ids(), []string{"a", "b", "behind", "after"})
	equal(t, first.Body.Lease, "30ms")
	http.DefaultClient.CloseIdleConnections()
	for runtime.NumGoroutine() > before+2 { // the server has two
		runtime.Gosched()
	}
}

func TestALeaseIsRenewedForAtMostMaxLeaseAndTheHandlerLearnsThatItEnds(t *testing.T) {
	topic := newTopic(t, message("a", ""))
	handler := func(ctx context.Context, _ *Leased) error { <-ctx.Done(); return nil }
	options := ConsumeOptions{Lease: 30 * time.Millisecond, MaxLease: 90 * time.Millisecond}
	warnings := consume(t, topic, handler, func() { topic.seen("ack", 1) }, options)
	if count := len(topic.seen("extend", 0)); count > 6 { // 90 ms have room for six thirds after which 30 ms are left
		t.Fatal(count)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "because MaxLease is over") {
		t.Fatal(warnings)
	}
}

func TestALostLeaseAndALostAcknowledgementAreLoggedOnce(t *testing.T) {
	topic := newTopic(t, message("a", ""))
	topic.answers["extend"] = append(topic.answers["extend"], lost("a"))
	topic.answers["ack"] = append(topic.answers["ack"], lost("a"))
	handler := func(ctx context.Context, _ *Leased) error { <-ctx.Done(); return nil }
	warnings := consume(t, topic, handler, func() { topic.seen("ack", 1) }, ConsumeOptions{Lease: 30 * time.Millisecond})
	if len(warnings) != 2 || !strings.Contains(warnings[0], "was lost, and") || !strings.Contains(warnings[1], "was lost before the message was settled") {
		t.Fatal(warnings)
	}
}

func TestMessagesOfOneOrderingKeyAreHandledOneAfterAnother(t *testing.T) {
	topic := newTopic(t, message("a1", "a"), message("a2", "a"), message("b1", "b"), message("a3", "a"))
	var mutex sync.Mutex
	running, order := map[string]bool{}, []string{}
	handler := func(_ context.Context, message *Leased) error {
		key := *message.OrderingKey
		mutex.Lock()
		if running[key] {
			t.Error("two messages of a key at once")
		}
		running[key] = true
		if key == "a" {
			order = append(order, message.Id)
		}
		mutex.Unlock()
		if message.Id == "a1" {
			topic.seen("ack", 1) // of b1
		}
		mutex.Lock()
		running[key] = false
		mutex.Unlock()
		return nil
	}
	consume(t, topic, handler, func() {
		for count := 1; len(topic.idsOf("ack")) < 4; count++ {
			topic.seen("ack", count)
		}
	}, ConsumeOptions{})
	equal(t, order, []string{"a1", "a2", "a3"})
}

func TestTheLoopGoesOnWhileTheAPIIsAwayOrBusyWithTheSameCall(t *testing.T) {
	topic := newTopic(t, message("a", ""))
	topic.answers["receive"] = []func(asked, http.ResponseWriter){
		says(503, problem(503, "unavailable")), says(429, problem(429, "rate")), drops, says(502, "<html>", "Content-Type", "text/html"),
	}
	warnings := consume(t, topic, func(context.Context, *Leased) error { return nil }, func() { topic.seen("ack", 1) }, ConsumeOptions{})
	received := topic.seen("receive", 5)
	for _, one := range received[:5] {
		equal(t, one.Body.Call, received[0].Body.Call)
	}
	equal(t, len(warnings), 4)
}

func TestAMessageWhoseAcknowledgementFailsIsAcknowledgedOnceTheAPIIsBackAndUntilThenItsLeaseIsRenewed(t *testing.T) {
	topic := newTopic(t, message("a", ""), message("b", ""), message("c", ""))
	partly := says(200, `{"results":[{"id":"a","status":503,"problem":`+problem(503, "unavailable")+`}]}`)
	topic.answers["ack"] = []func(asked, http.ResponseWriter){partly, drops}
	handled := ""
	handler := func(_ context.Context, message *Leased) error { handled += message.Id; return nil }
	warnings := consume(t, topic, handler, func() {
		for count := 1; !slices.Contains(topic.idsOf("ack"), "c"); count++ {
			topic.seen("ack", count)
		}
	}, ConsumeOptions{Lease: 30 * time.Millisecond, Concurrency: 1})
	equal(t, []any{handled, len(warnings)}, []any{"abc", 2})
	if len(topic.idsOf("extend")) < 2 {
		t.Fatal(topic.calls)
	}
}

func TestWhatCannotBeAcknowledgedAtTheEndOfTheLoopIsLogged(t *testing.T) {
	topic := newTopic(t, message("a", ""))
	topic.answers["ack"] = []func(asked, http.ResponseWriter){drops, drops}
	warnings := consume(t, topic, func(context.Context, *Leased) error { return nil }, func() { topic.seen("ack", 1) }, ConsumeOptions{})
	if !strings.Contains(warnings[len(warnings)-1], "could not be settled, and is received again") {
		t.Fatal(warnings)
	}
}

func TestTheLoopEndsWhenTheAPIRefusesTheCallAfterTheHandlersThatRun(t *testing.T) {
	for status, kind := range map[int]string{400: "invalid", 401: "unauthorized", 403: "forbidden", 404: "not-found", 409: "other-filter"} {
		topic := newTopic(t)
		topic.answers["receive"] = []func(asked, http.ResponseWriter){says(200, `{"messages":[`+message("a", "")+`]}`), says(status, problem(status, kind))}
		handler := func(context.Context, *Leased) error { topic.seen("receive", 2); return nil }
		err := client(t, topic.url).Consume(context.Background(), "t", "mail", handler, ConsumeOptions{})
		if !IsStatus(err, status) {
			t.Fatal(err)
		}
		equal(t, topic.idsOf("ack"), []string{"a"})
	}
}

func TestTheEndOfTheLoopWaitsForHandlersAndGivesBackWhatNoneHasBegun(t *testing.T) {
	topic := newTopic(t, message("a", "k"), message("b", "k"))
	ctx, stop := context.WithCancel(context.Background())
	handler := func(context.Context, *Leased) error {
		topic.seen("receive", 2)
		topic.mutex.Lock()
		topic.answers["receive"] = append(topic.answers["receive"], says(200, `{"messages":[`+message("leased meanwhile", "")+`]}`))
		topic.mutex.Unlock()
		stop()
		topic.seen("extend", 1)
		return nil
	}
	if err := client(t, topic.url).Consume(ctx, "t", "mail", handler, ConsumeOptions{}); err != nil {
		t.Fatal(err)
	}
	equal(t, topic.idsOf("ack"), []string{"a"})
	released := topic.seen("extend", 1)[0]
	equal(t, append(released.ids(), released.Body.Lease), []string{"b", "leased meanwhile", "0ms"})
	received := topic.seen("receive", 3)
	equal(t, []string{received[2].Body.Call, received[2].Body.Wait}, []string{received[1].Body.Call, "0ms"})
}

func TestOptionsThatCannotBeAreRefused(t *testing.T) {
	for _, wrong := range []ConsumeOptions{{Concurrency: -1}, {MaxLease: 13 * time.Hour}, {Lease: time.Minute, MaxLease: time.Second}, {Lease: -1}} {
		if err := client(t, "http://127.0.0.1:1").Consume(context.Background(), "t", "g", nil, wrong); err == nil {
			t.Fatal(wrong)
		}
	}
}
