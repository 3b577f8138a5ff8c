package delayq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type asked struct {
	Method, Path, Authorization, Text string
	Body                              struct {
		Call     string           `json:"call"`
		Messages []map[string]any `json:"messages"`
	}
}

// serverThat gives these answers in turn, the last one for ever, and records the requests.
func serverThat(t *testing.T, answers ...func(asked, http.ResponseWriter)) (string, func() []asked) {
	t.Helper()
	var mutex sync.Mutex
	var seen []asked
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		one := asked{Method: request.Method, Path: request.URL.RequestURI(), Authorization: request.Header.Get("Authorization")}
		text, _ := io.ReadAll(request.Body)
		one.Text = string(text)
		_ = json.Unmarshal(text, &one.Body)
		mutex.Lock()
		seen = append(seen, one)
		answer := answers[min(len(seen), len(answers))-1]
		mutex.Unlock()
		answer(one, writer)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []asked {
		mutex.Lock()
		defer mutex.Unlock()
		return seen
	}
}

func drops(asked, http.ResponseWriter) { panic(http.ErrAbortHandler) }

func says(status int, text string, headers ...string) func(asked, http.ResponseWriter) {
	return func(_ asked, writer http.ResponseWriter) {
		for at := 0; at < len(headers); at += 2 {
			writer.Header().Set(headers[at], headers[at+1])
		}
		writer.WriteHeader(status)
		fmt.Fprint(writer, text)
	}
}

func problem(status int, kind string) string {
	return fmt.Sprintf(`{"type":"urn:delayq:problem:%s","title":"x","status":%d,"detail":"No."}`, kind, status)
}

func schedules(request asked, writer http.ResponseWriter) {
	var results []string
	for _, one := range request.Body.Messages {
		results = append(results, fmt.Sprintf(`{"status":201,"id":%q,"queue":0,"state":"scheduled","dueTime":"2033-01-01T00:00:00.000Z","dueMs":1988150400000}`, one["id"]))
	}
	fmt.Fprintf(writer, `{"results":[%s]}`, strings.Join(results, ","))
}

func client(t *testing.T, url string, options ...Option) *Client {
	t.Helper()
	made, err := New(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func equal(t *testing.T, found, expected any) {
	t.Helper()
	if !reflect.DeepEqual(found, expected) {
		t.Fatalf("found %v, expected %v", found, expected)
	}
}

func TestAMessageKeepsItsIDWhenAnAnswerIsLost(t *testing.T) {
	url, seen := serverThat(t, drops, drops, schedules)
	done, err := client(t, url).Schedule(context.Background(), Message{Topic: "orders", DelayTime: 30 * time.Minute})
	if err != nil || !done.Created {
		t.Fatal(done, err)
	}
	equal(t, len(seen()), 3)
	for _, request := range seen() {
		equal(t, request.Body.Messages[0]["id"], done.Id)
	}
}

func TestMessagesOfABatchAreRepeatedAfter429And503(t *testing.T) {
	partly := func(request asked, writer http.ResponseWriter) {
		fmt.Fprintf(writer, `{"results":[{"status":200,"id":"a","queue":1,"state":"scheduled"},{"status":429,"id":"b","problem":%s}]}`, problem(429, "quota"))
	}
	url, seen := serverThat(t, says(503, problem(503, "overloaded"), "Retry-After", "1"), partly, schedules)
	began := time.Now()
	results, err := client(t, url).ScheduleMany(context.Background(), []Message{{ID: "a", Topic: "t", Now: true}, {ID: "b", Topic: "t", Now: true}})
	if err != nil || time.Since(began) < time.Second {
		t.Fatal(err, time.Since(began))
	}
	equal(t, []bool{results[0].Created, results[1].Created}, []bool{false, true})
	equal(t, []int{len(seen()[0].Body.Messages), len(seen()[1].Body.Messages), len(seen()[2].Body.Messages)}, []int{2, 2, 1})
}

func TestARefusalIsAnErrorAndIsNotRepeated(t *testing.T) {
	url, seen := serverThat(t, says(200, `{"results":[{"status":400,"problem":`+problem(400, "invalid")+`}]}`))
	_, err := client(t, url).Schedule(context.Background(), Message{Topic: "t", Now: true})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Kind() != "invalid" || !IsStatus(err, 400) || len(seen()) != 1 {
		t.Fatal(err)
	}
	url, seen = serverThat(t, says(403, problem(403, "forbidden")))
	err = client(t, url, WithAPIKey("dq_x")).Read(context.Background(), "/v1/queues", nil, &QueuesOut{})
	if !IsStatus(err, 403) || seen()[0].Authorization != "Bearer dq_x" {
		t.Fatal(err)
	}
}

func TestACallGivesUpAndNamesItsIDs(t *testing.T) {
	url, _ := serverThat(t, drops)
	_, err := client(t, url, WithGiveUpAfter(300*time.Millisecond)).Schedule(context.Background(), Message{ID: "a", Topic: "t", Now: true})
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) || unavailable.IDs[0] != "a" {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = client(t, url).Cancel(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestBatchesAreSplitByNumberAndHalvedWhenTheServerTakesLess(t *testing.T) {
	small := func(request asked, writer http.ResponseWriter) {
		if len(request.Body.Messages) > 300 {
			says(413, problem(413, "too-large"))(request, writer)
		} else {
			schedules(request, writer)
		}
	}
	url, seen := serverThat(t, small)
	messages := make([]Message, 1100)
	for at := range messages {
		messages[at] = Message{ID: fmt.Sprint("m", at), Topic: "t", Now: true}
	}
	results, err := client(t, url).ScheduleMany(context.Background(), messages)
	if err != nil {
		t.Fatal(err)
	}
	for at, result := range results {
		if result.Err != nil || result.Id != messages[at].ID {
			t.Fatal(at, result)
		}
	}
	var sizes []int
	for _, request := range seen() {
		sizes = append(sizes, len(request.Body.Messages))
	}
	equal(t, sizes, []int{1000, 500, 250, 250, 500, 250, 250, 100})
}

func TestFieldsAreWrittenAsTheAPITakesThem(t *testing.T) {
	url, seen := serverThat(t, schedules)
	due := time.Date(2033, 1, 31, 9, 0, 0, 0, time.FixedZone("", 3600))
	message := Message{ID: "a", Topic: "t", Body: []byte{1, 255}, ExpectDate: due, ExpireAfter: 90 * time.Second, Keys: []string{"k"}}
	if _, err := client(t, url).Schedule(context.Background(), message); err != nil {
		t.Fatal(err)
	}
	equal(t, seen()[0].Body.Messages[0], map[string]any{
		"id": "a", "topic": "t", "bodyBase64": "Af8=", "expectDate": "2033-01-31T08:00:00.000Z", "expireAfter": "90000ms", "keys": []any{"k"},
	})
	if _, err := client(t, url).Schedule(context.Background(), Message{Topic: "t"}); err == nil || !strings.Contains(err.Error(), "exactly one") {
		t.Fatal(err)
	}
}

func TestASearchGoesOnToTheLastPage(t *testing.T) {
	page := func(id, next string) func(asked, http.ResponseWriter) {
		return says(200, fmt.Sprintf(`{"messages":[{"id":%q}],"looked":1,"complete":true,"nextPageToken":%s}`, id, next))
	}
	address, seen := serverThat(t, page("a", `"p2"`), page("b", "null"))
	var ids []string
	for one, err := range client(t, address).Search(context.Background(), url.Values{"topic": {"t.*"}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, one.Id)
	}
	equal(t, ids, []string{"a", "b"})
	equal(t, seen()[1].Path, "/v1/messages?pageToken=p2&topic=t.%2A")
}

func TestConsumerGroupsGoOnToTheLastPage(t *testing.T) {
	page := func(group, next string) func(asked, http.ResponseWriter) {
		return says(200, fmt.Sprintf(`{"groups":[{"topic":"t","group":%q}],"total":2,"nextPageToken":%s}`, group, next))
	}
	address, seen := serverThat(t, page("audit", `"p2"`), page("mail", "null"))
	var groups []string
	for one, err := range client(t, address).Consumers(context.Background(), url.Values{"match": {"t"}}) {
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, one.Group)
	}
	equal(t, groups, []string{"audit", "mail"})
	equal(t, seen()[1].Path, "/v1/consumers?match=t&pageToken=p2")
}

func TestAReceiveKeepsItsNameWhenAnAnswerIsLostAndItsLeasesAreSettled(t *testing.T) {
	message := `{"id":"a","topic":"t","lease":".1-0.x","dueTime":"2033-01-01T00:00:00.000Z","dueMs":1,"attempt":1,"deliveries":1,"handBacks":0}`
	url, seen := serverThat(t, drops, says(200, `{"messages":[`+message+`]}`), says(200, `{"results":[{"id":"a","status":200,"result":"acknowledged"}]}`))
	delayq, wait := client(t, url), "20s"
	messages, err := delayq.Receive(context.Background(), "t", ReceiveIn{Group: "mail", Wait: &wait})
	if err != nil || len(messages) != 1 || messages[0].Lease != ".1-0.x" {
		t.Fatal(messages, err)
	}
	equal(t, seen()[1].Path, "/v1/topics/t:receive")
	if call := seen()[1].Body.Call; call == "" || call != seen()[0].Body.Call {
		t.Fatal(call)
	}
	leases := LeasesIn{Group: "mail", Messages: []LeaseIn{{Id: messages[0].Id, Lease: messages[0].Lease}}}
	done, err := delayq.Ack(context.Background(), "t", leases)
	if err != nil || *done[0].Result != "acknowledged" {
		t.Fatal(done, err)
	}
}

func TestLeasesWhoseChangeFailedForAWhileAreChangedAgainWithoutTheOthers(t *testing.T) {
	partly := says(200, `{"results":[{"id":"a","status":200,"result":"acknowledged"},{"id":"b","status":503,"problem":`+problem(503, "unavailable")+`}]}`)
	address, seen := serverThat(t, partly, says(200, `{"results":[{"id":"b","status":409,"result":"lost"}]}`))
	leases := LeasesIn{Group: "mail", Messages: []LeaseIn{{Id: "a", Lease: "la"}, {Id: "b", Lease: "lb"}}}
	results, err := client(t, address).Ack(context.Background(), "t", leases)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, []string{*results[0].Result, *results[1].Result}, []string{"acknowledged", "lost"})
	equal(t, seen()[1].Body.Messages, []map[string]any{{"id": "b", "lease": "lb"}})
}

func TestADeliveredMessageIsHandedBack(t *testing.T) {
	address, seen := serverThat(t, says(200, `{"results":[{"status":201,"id":"a.b3","state":"scheduled","handBacks":3,"dueMs":1}]}`))
	headers := map[string]string{"id": "a.b2", "due": "1", "p:delayq-hand-backs": "2"}
	message, err := ReadKafka("t", headers, []byte("hello"))
	if err != nil || message.HandBacks() != 2 {
		t.Fatal(message, err)
	}
	done, err := client(t, address).HandBackDelivered(context.Background(), HandBackOptions{Reason: "no stock"}, message)
	if err != nil || done[0].Err != nil || done[0].Id != "a.b3" {
		t.Fatal(done, err)
	}
	equal(t, seen()[0].Path, "/v1/messages:handBack")
}

func TestAReceivedMessageHasItsBodyAsBytesAsTextAndAsJSON(t *testing.T) {
	address, _ := serverThat(t, says(200, `{"messages":[{"id":"a","lease":"l","body":"{\"n\":1}"},{"id":"b","lease":"l","bodyBase64":"/w=="},{"id":"c","lease":"l"}]}`))
	messages, err := client(t, address).Receive(context.Background(), "t", ReceiveIn{Group: "mail"})
	if err != nil {
		t.Fatal(err)
	}
	var value struct{ N int }
	if err := messages[0].JSON(&value); err != nil || value.N != 1 {
		t.Fatal(value, err)
	}
	equal(t, messages[0].Text(), `{"n":1}`)
	equal(t, [][]byte{messages[1].Body, messages[2].Body}, [][]byte{{255}, {}})
}

func TestABodyComesBackWithItsBytesAndItsContentType(t *testing.T) {
	address, seen := serverThat(t, says(200, `{"results":[{"status":201,"id":"a.b1","state":"scheduled","handBacks":1,"dueMs":1}]}`))
	for _, one := range []struct{ kind, body, field string }{
		{"application/json", `{"price":1.0}`, `"body":{"price":1.0}`},
		{"application/json", `1e3`, `"body":1e3`},
		{"application/json", `{"id":12345678901234567890}`, `"body":{"id":12345678901234567890}`},
		{"application/json", `{"b":1,"1":2,"b":3}`, `"body":{"b":1,"1":2,"b":3}`},
		{"application/json", "[\"\\u00e9<&>\u2028\"]", "\"body\":[\"\\u00e9<&>\u2028\"]"},
		{"application/json", `null`, `"body":null`},
		{"Application/JSON; charset=utf-8", `[1.50]`, `"body":[1.50]`},
		{"application/json", `"text"`, `"body":"\"text\""`},
		{"application/json", `{broken`, `"body":"{broken"`},
		{"application/json", ``, `"body":""`},
		{"application/json-seq", `1.0`, `"body":"1.0"`},
		{"text/plain; charset=utf-8", "\ufeff<b>", "\"body\":\"\ufeff<b>\""},
		{"text/plain; charset=latin1", "\xe9", `"bodyBase64":"6Q=="`},
		{"application/octet-stream", `text`, `"bodyBase64":"dGV4dA=="`},
		{"", `1.0`, `"body":"1.0"`},
	} {
		header := http.Header{"Ce-Id": {"a"}, "Ce-Type": {"t"}, "Ce-Time": {"2033-01-01T00:00:00Z"}, "Content-Type": {one.kind}}
		webhook, err := ReadWebhook(header, []byte(one.body))
		kafka, failed := ReadKafka("t", map[string]string{"id": "a", "due": "1", "content-type": one.kind}, []byte(one.body))
		rabbit, wrong := ReadRabbitMQ("a", "t", map[string]any{"delayq-due": 1}, []byte(one.body), one.kind)
		if err = errors.Join(err, failed, wrong); err != nil {
			t.Fatal(err)
		}
		for _, message := range []*Received{webhook, kafka, rabbit} {
			if _, err := client(t, address).HandBackDelivered(context.Background(), HandBackOptions{}, message); err != nil {
				t.Fatal(err)
			}
			if text := seen()[len(seen())-1].Text; !strings.Contains(text, one.field) {
				t.Fatalf("%v is sent as %s", one, text)
			} else if strings.Contains(text, `"contentType":"application/json"`) != (one.body == `"text"`) {
				t.Fatal("the API takes a string without a content type as text: ", text)
			}
		}
	}
}

func TestAScheduledBodyKeepsItsBytes(t *testing.T) {
	address, seen := serverThat(t, schedules)
	for body, field := range map[any]string{
		"<b>&": `"body":"<b>&"`, "\xe9": `"bodyBase64":"6Q=="`, 1.5: `"body":1.5`, json.Number("12345678901234567890"): `"body":12345678901234567890`,
	} {
		if _, err := client(t, address).Schedule(context.Background(), Message{Topic: "t", Body: body, Now: true}); err != nil {
			t.Fatal(err)
		}
		if text := seen()[len(seen())-1].Text; !strings.Contains(text, field) {
			t.Fatalf("%v is sent as %s", body, text)
		}
	}
	raw := json.RawMessage(`{"html":"<b>","id":12345678901234567890,"price":1.0}`)
	if _, err := client(t, address).Schedule(context.Background(), Message{Topic: "t", Body: raw, Now: true}); err != nil {
		t.Fatal(err)
	}
	if text := seen()[len(seen())-1].Text; !strings.Contains(text, `"body":`+string(raw)) {
		t.Fatal(text)
	}
}

// calls are all methods that send a request.
var calls = map[string]func(*Client, context.Context) error{
	"Schedule": func(c *Client, ctx context.Context) error {
		_, err := c.Schedule(ctx, Message{Topic: "t", Now: true})
		return err
	},
	"Get": func(c *Client, ctx context.Context) error { _, _, err := c.Get(ctx, "x"); return err },
	"Search": func(c *Client, ctx context.Context) error {
		for _, err := range c.Search(ctx, nil) {
			return err
		}
		return nil
	},
	"DeadLetters": func(c *Client, ctx context.Context) error {
		for _, err := range c.DeadLetters(ctx, nil) {
			return err
		}
		return nil
	},
	"Topics": func(c *Client, ctx context.Context) error {
		for _, err := range c.Topics(ctx, nil) {
			return err
		}
		return nil
	},
	"Consumers": func(c *Client, ctx context.Context) error {
		for _, err := range c.Consumers(ctx, nil) {
			return err
		}
		return nil
	},
	"Audit": func(c *Client, ctx context.Context) error {
		for _, err := range c.Audit(ctx, nil) {
			return err
		}
		return nil
	},
	"Cancel": func(c *Client, ctx context.Context) error { _, err := c.Cancel(ctx, "x"); return err },
	"CancelMany": func(c *Client, ctx context.Context) error {
		_, err := c.CancelMany(ctx, Selection{Keys: []string{"k"}})
		return err
	},
	"Reschedule": func(c *Client, ctx context.Context) error {
		_, err := c.Reschedule(ctx, "x", Due{Now: true})
		return err
	},
	"DeliverNow": func(c *Client, ctx context.Context) error { _, err := c.DeliverNow(ctx, "x", false); return err },
	"DeliverNowMany": func(c *Client, ctx context.Context) error {
		_, err := c.DeliverNowMany(ctx, Selection{IDs: []string{"x"}})
		return err
	},
	"Redrive": func(c *Client, ctx context.Context) error { _, err := c.Redrive(ctx, "x"); return err },
	"Discard": func(c *Client, ctx context.Context) error { _, err := c.Discard(ctx, "x"); return err },
	"Receive": func(c *Client, ctx context.Context) error {
		_, err := c.Receive(ctx, "t", ReceiveIn{Group: "g"})
		return err
	},
	"Consume": func(c *Client, ctx context.Context) error {
		return c.Consume(ctx, "t", "g", func(context.Context, *Leased) error { return nil }, ConsumeOptions{})
	},
	"Ack": func(c *Client, ctx context.Context) error {
		_, err := c.Ack(ctx, "t", LeasesIn{Group: "g", Messages: []LeaseIn{{Id: "x", Lease: "l"}}})
		return err
	},
	"Extend": func(c *Client, ctx context.Context) error {
		_, err := c.Extend(ctx, "t", ExtendIn{Group: "g", Messages: []LeaseIn{{Id: "x", Lease: "l"}}})
		return err
	},
	"HandBack": func(c *Client, ctx context.Context) error {
		_, err := c.HandBack(ctx, "t", HandBackIn{Group: "g", Messages: []HandedBackIn{{Id: "x", Lease: "l"}}})
		return err
	},
	"HandBackDelivered": func(c *Client, ctx context.Context) error {
		_, err := c.HandBackDelivered(ctx, HandBackOptions{}, &Received{ID: "x", Topic: "t"})
		return err
	},
	"PauseTopics": func(c *Client, ctx context.Context) error {
		_, err := c.PauseTopics(ctx, PauseIn{Match: "t"}, 0)
		return err
	},
	"ResumeTopics": func(c *Client, ctx context.Context) error {
		_, err := c.ResumeTopics(ctx, ResumeIn{Match: "t"})
		return err
	},
	"PutPolicy": func(c *Client, ctx context.Context) error {
		_, err := c.PutPolicy(ctx, "p", PolicyIn{Match: "t"})
		return err
	},
	"DeletePolicy": func(c *Client, ctx context.Context) error { _, err := c.DeletePolicy(ctx, "p"); return err },
	"Read":         func(c *Client, ctx context.Context) error { return c.Read(ctx, "/v1/overview", nil, &OverviewOut{}) },
}

func TestAReceiveHasTheTimeOfAnAttemptAndTheWaitThatItAsksFor(t *testing.T) {
	for wait, extra := range map[string]time.Duration{
		"": 0, "0s": 0, "20s": 20 * time.Second, "1500ms": 1500 * time.Millisecond, "PT20S": longestReceive, "1h": longestReceive,
	} {
		var left time.Duration
		transport := transportFunc(func(request *http.Request) (*http.Response, error) {
			until, _ := request.Context().Deadline()
			left = time.Until(until)
			return nil, errors.New("no answer")
		})
		began := time.Now()
		caller, err := New("http://127.0.0.1:1", WithHTTPClient(&http.Client{Transport: transport}), WithTimeout(time.Hour), WithGiveUpAfter(0))
		if err != nil {
			t.Fatal(err)
		}
		request := ReceiveIn{Group: "g"}
		if wait != "" {
			request.Wait = &wait
		}
		_, _ = caller.Receive(context.Background(), "t", request)
		if most := time.Hour + extra; left > most || left < most-time.Since(began) {
			t.Fatalf("%q: %v", wait, left)
		}
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func TestAnAnswerAboutAnotherMessageIsNotTheOneThatWasAskedFor(t *testing.T) {
	address, _ := serverThat(t, says(200, `{"id":"other","state":"due"}`), says(200, `{"id":"x.0a1b","state":"a new one"}`))
	caller := client(t, address)
	if _, found, err := caller.Get(context.Background(), "x"); found || err == nil || !strings.HasSuffix(err.Error(), ": is this the URL of its API?") {
		t.Fatal(found, err)
	}
	if state, found, err := caller.Get(context.Background(), "x"); !found || err != nil || state.Id != "x.0a1b" {
		t.Fatal(state, found, err)
	}
}

func TestAnAnswerThatIsNotFromDelayqIsAnErrorWithTheURLAtOnceAndFromEveryCall(t *testing.T) {
	kind := reflect.TypeFor[*Client]()
	for at := range kind.NumMethod() {
		if name := kind.Method(at).Name; calls[name] == nil && name != "ScheduleMany" {
			t.Fatal("a call is missing in this test: ", name)
		}
	}
	for name, answer := range map[string]func(asked, http.ResponseWriter){
		"a page":                   says(200, "<html>please log in</html>", "Content-Type", "text/html"),
		"a page without a type":    says(200, "<html>please log in</html>"),
		"a page that is not found": says(404, "<html>", "Content-Type", "text/html"),
		"JSON as a page":           says(200, `{"results":[{"id":"x"}],"id":"x","state":"due"}`, "Content-Type", "text/html"),
		"no content":               func(_ asked, writer http.ResponseWriter) { writer.WriteHeader(204) },
		"no body":                  says(200, ""),
		"an empty object":          says(200, "{}"),
		"an array":                 says(200, `[{"id":"x"}]`),
		"null":                     says(200, "null"),
		"truncated JSON":           says(200, `{"messages":[],"results":[{"id":"x"`),
		"lists of something else":  says(200, `{"results":[1],"messages":[1],"topics":[1],"groups":1,"entries":[1],"deadLetters":[1],"id":5,"match":5,"name":5,"findings":[1]}`),
		"lists that are null":      says(200, `{"results":null,"messages":null,"topics":null,"groups":null,"entries":null,"deadLetters":null}`),
		"too few results":          says(200, `{"results":[]}`),
		"results of nothing":       says(200, `{"results":[{}],"messages":[{}]}`),
		"another problem":          says(404, `{"type":"about:blank","title":"Not Found","status":404,"detail":"No such page"}`),
		"another path of an API":   says(404, `{"type":"urn:delayq:problem:not-found","title":"Not found","status":404,"detail":"Unknown path. /docs lists all paths."}`),
	} {
		for call, do := range calls {
			address, seen := serverThat(t, answer)
			err := do(client(t, address), context.Background())
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "delayq: "+address) || !strings.HasSuffix(err.Error(), ": is this the URL of its API?") {
				t.Fatalf("%s, %s: %v", call, name, err)
			}
			if len(seen()) != 1 {
				t.Fatalf("%s was repeated: %s", call, name)
			}
		}
	}
}

func TestARedirectIsRefusedWithItsTargetAndNoRequestFollowsIt(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		target, followed := serverThat(t, schedules)
		address, seen := serverThat(t, says(status, "", "Location", target+"/login"))
		for name, do := range calls {
			err := do(client(t, address, WithAPIKey("dq_x"), WithHTTPClient(&http.Client{})), context.Background())
			wanted := fmt.Sprintf("delayq: %s answered %d, a redirect to '%s/login', which delayq does not follow: is this the URL of its API?", address, status, target)
			if err == nil || err.Error() != wanted {
				t.Fatal(name, err)
			}
		}
		equal(t, []int{len(seen()), len(followed())}, []int{len(calls), 0})
	}
}

func TestGetFindsNothingOnlyForAnIDThatDelayqDoesNotKnow(t *testing.T) {
	address, _ := serverThat(t, says(404, `{"type":"urn:delayq:problem:not-found","title":"x","status":404,"detail":"No message has this id.","field":"id"}`))
	if _, found, err := client(t, address).Get(context.Background(), "x"); found || err != nil {
		t.Fatal(found, err)
	}
	for _, status := range []int{502, 503, 504} {
		address, _ := serverThat(t, says(status, "<html>"))
		_, _, err := client(t, address, WithGiveUpAfter(0)).Get(context.Background(), "x")
		var unavailable *UnavailableError
		if !errors.As(err, &unavailable) || err.Error() != fmt.Sprintf("delayq: %s answered %d", address, status) {
			t.Fatal(err)
		}
	}
}

func TestARepeatedChangeHasTheNameOfItsFirstAttempt(t *testing.T) {
	for name, do := range map[string]func(*Client, context.Context) error{
		"Reschedule": calls["Reschedule"], "DeliverNow": calls["DeliverNow"], "DeliverNowMany": calls["DeliverNowMany"], "Redrive": calls["Redrive"],
	} {
		good := says(200, `{"id":"x","state":"scheduled","results":[{"id":"x","status":200,"result":"scheduled"}]}`)
		address, seen := serverThat(t, drops, good)
		for _, ctx := range []context.Context{context.Background(), context.Background(), WithCall(context.Background(), "mine")} {
			if err := do(client(t, address), ctx); err != nil {
				t.Fatal(name, err)
			}
		}
		names := []string{}
		for _, one := range seen() {
			names = append(names, one.Body.Call)
		}
		if len(names) != 4 || names[0] == "" || names[1] != names[0] || names[2] == names[0] || names[3] != "mine" {
			t.Fatal(name, names)
		}
	}
}

// closing counts the bodies of answers that are open.
type closing struct {
	http.RoundTripper
	open atomic.Int64
}

type counted struct {
	io.ReadCloser
	open *atomic.Int64
}

func (c *closing) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := c.RoundTripper.RoundTrip(request)
	if err == nil {
		c.open.Add(1)
		answer.Body = &counted{answer.Body, &c.open}
	}
	return answer, err
}

func (c *counted) Close() error {
	c.open.Add(-1)
	return c.ReadCloser.Close()
}

func TestEveryBodyOfAnAnswerIsClosedAndTheContextEndsThePauseBetweenTwoAttempts(t *testing.T) {
	transport := &closing{RoundTripper: http.DefaultTransport}
	for _, answer := range []func(asked, http.ResponseWriter){
		schedules, says(301, "moved", "Location", "/x"), says(404, "<html>"), says(503, problem(503, "overloaded"), "Retry-After", "20"),
	} {
		ctx, cancel := context.WithCancel(context.Background())
		address, _ := serverThat(t, func(one asked, writer http.ResponseWriter) {
			answer(one, writer)
			time.AfterFunc(10*time.Millisecond, cancel)
		})
		_, _ = client(t, address, WithHTTPClient(&http.Client{Transport: transport})).Schedule(ctx, Message{Topic: "t", Now: true})
		cancel()
	}
	equal(t, transport.open.Load(), int64(0))
}

func TestAWrongURLAndAServerThatIsNotDelayqAreNamed(t *testing.T) {
	for _, wrong := range []string{"redis://127.0.0.1", "http://user:secret@host", "127.0.0.1:8080", "http://host?key=secret"} {
		if _, err := New(wrong); err == nil {
			t.Fatal(wrong)
		}
	}
	if _, err := New("http://host", WithAPIKey("dq_x\n")); err == nil {
		t.Fatal("a key with a line break is accepted")
	}
	url, _ := serverThat(t, says(404, "<html>"))
	err := client(t, url).Read(context.Background(), "/v1/me", nil, &MeOut{})
	if err == nil || !strings.Contains(err.Error(), "is this the URL of its API") {
		t.Fatal(err)
	}
}
