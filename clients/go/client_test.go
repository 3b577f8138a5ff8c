package delayq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

type asked struct {
	Method, Path, Authorization string
	Body                        struct {
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
		_ = json.NewDecoder(request.Body).Decode(&one.Body)
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

func TestAWrongURLAndAServerThatIsNotDelayqAreNamed(t *testing.T) {
	for _, wrong := range []string{"redis://127.0.0.1", "http://user:secret@host", "127.0.0.1:8080"} {
		if _, err := New(wrong); err == nil {
			t.Fatal(wrong)
		}
	}
	url, _ := serverThat(t, says(404, "<html>"))
	err := client(t, url).Read(context.Background(), "/v1/me", nil, &MeOut{})
	if err == nil || !strings.Contains(err.Error(), "is this the URL of its API") {
		t.Fatal(err)
	}
}
