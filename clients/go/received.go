package delayq

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Received is a message as a consumer received it, whatever broker brought it.
// A message may arrive twice with the same ID: remember the ids that you have handled.
type Received struct {
	ID          string
	Topic       string
	Due         time.Time // when it was to be delivered
	Attempt     int       // 1 for the first
	Tags        string
	Keys        []string
	OrderingKey string
	Properties  map[string]string
	Body        []byte
	ContentType string // empty if the target does not carry it
}

// HandBacks counts how often consumers handed the message back.
func (r *Received) HandBacks() int {
	count, err := strconv.Atoi(r.Properties["delayq-hand-backs"])
	if err != nil {
		return 0
	}
	return count
}

func (r *Received) handBack(options HandBackOptions) map[string]any {
	fields := map[string]any{
		"id": r.ID, "topic": r.Topic, "tags": r.Tags, "keys": r.Keys, "orderingKey": r.OrderingKey, "properties": r.Properties,
		"handBacks": r.HandBacks(),
	}
	// The next delivery has the same bytes and the same content type. A JSON string is sent as text with its content type, because
	// the API takes a string as text otherwise.
	kind, _, _ := strings.Cut(r.ContentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	switch text := strings.TrimLeft(string(r.Body), " \t\r\n"); {
	case kind == "application/octet-stream" || !utf8.Valid(r.Body):
		fields["bodyBase64"] = r.Body
	case kind == "application/json" && json.Valid(r.Body) && text[0] == '"':
		fields["body"], fields["contentType"] = string(r.Body), kind
	case kind == "application/json" && json.Valid(r.Body):
		fields["body"] = json.RawMessage(r.Body)
	default:
		fields["body"] = string(r.Body)
	}
	if r.Keys == nil {
		delete(fields, "keys")
	}
	if options.Reason != "" {
		fields["reason"] = options.Reason
	}
	if options.DelayTime != 0 {
		fields["delayTime"] = duration(options.DelayTime)
	}
	return fields
}

// Text is the body as text.
func (r *Received) Text() string { return string(r.Body) }

// JSON reads the body into a value.
func (r *Received) JSON(value any) error { return json.Unmarshal(r.Body, value) }

// Leased is a message that was received from delayq, with its lease. Tags, Keys, OrderingKey and Properties are nil if it has none.
type Leased struct {
	ReceivedMessageOut
	Body []byte `json:"-"`
}

// Text is the body as text.
func (l *Leased) Text() string { return string(l.Body) }

// JSON reads the body into a value.
func (l *Leased) JSON(value any) error { return json.Unmarshal(l.Body, value) }

func leased(message ReceivedMessageOut) Leased {
	made := Leased{ReceivedMessageOut: message, Body: []byte{}}
	if message.BodyBase64 != nil {
		made.Body, _ = base64.StdEncoding.DecodeString(*message.BodyBase64)
	} else if message.Body != nil {
		made.Body = []byte(*message.Body)
	}
	return made
}

// ErrSignature is returned for a request that this delayq did not sign, or signed too long ago. Answer it with 401.
var ErrSignature = errors.New("delayq: the signature is wrong, or it was made too long ago")

// Tolerance is how old a signature may be.
const Tolerance = 5 * time.Minute

// VerifyWebhook returns the message of a webhook request that delayq signed within the Tolerance before now.
// The body is the one that arrived, unchanged. Secrets are those of the route (whsec_…): give both while you change them.
func VerifyWebhook(header http.Header, body []byte, now time.Time, secrets ...string) (*Received, error) {
	id, timestamp := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > Tolerance {
		return nil, ErrSignature
	}
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			return nil, fmt.Errorf("delayq: the secret is not whsec_ and base64: %w", err)
		}
		hash := hmac.New(sha256.New, key)
		fmt.Fprintf(hash, "%s.%s.", id, timestamp)
		hash.Write(body)
		expected := []byte("v1," + base64.StdEncoding.EncodeToString(hash.Sum(nil)))
		for _, given := range strings.Fields(header.Get("Webhook-Signature")) {
			if hmac.Equal([]byte(given), expected) {
				message, err := ReadWebhook(header, body)
				if err == nil { // only the id, the time and the body are signed: the id of the message is the signed one
					message.ID = strings.ReplaceAll(id, "~", ".")
				}
				return message, err
			}
		}
	}
	return nil, ErrSignature
}

// ReadWebhook reads a message that arrived as a webhook. Check its signature first, by VerifyWebhook.
func ReadWebhook(header http.Header, body []byte) (*Received, error) {
	var failed error
	unquote := func(name string) string {
		value, err := url.PathUnescape(header.Get(name))
		failed = errors.Join(failed, err)
		return value
	}
	due, err := time.Parse(time.RFC3339, header.Get("Ce-Time"))
	message := &Received{
		ID: header.Get("Ce-Id"), Topic: unquote("Ce-Type"), Due: due, Attempt: attempt(header.Get("Ce-Attempt")),
		Tags: unquote("Ce-Tags"), Keys: strings.Fields(unquote("Ce-Keys")), OrderingKey: unquote("Ce-Partitionkey"),
		Properties: map[string]string{}, Body: body, ContentType: header.Get("Content-Type"),
	}
	failed = errors.Join(failed, err)
	if properties := header.Get("Delayq-Properties"); properties != "" {
		failed = errors.Join(failed, json.Unmarshal([]byte(properties), &message.Properties))
	}
	return message.checked(failed)
}

// ReadKafka reads a message that a Kafka consumer received from a topic.
func ReadKafka(topic string, headers map[string]string, value []byte) (*Received, error) {
	properties := map[string]string{}
	for name, property := range headers {
		if short, found := strings.CutPrefix(name, "p:"); found {
			properties[short] = property
		} else if name == "traceparent" {
			properties[name] = property
		}
	}
	if named := headers["topic"]; named != "" {
		topic = named
	}
	due, err := unixMs(headers["due"])
	message := &Received{
		ID: headers["id"], Topic: topic, Due: due, Attempt: attempt(headers["attempt"]), Tags: headers["tags"],
		Keys: strings.Fields(headers["keys"]), OrderingKey: headers["ordering-key"], Properties: properties, Body: value,
		ContentType: headers["content-type"],
	}
	return message.checked(err)
}

// ReadRabbitMQ reads a message that a RabbitMQ consumer received: its message id, its type, its headers, its body and its content
// type. Without the content type, a body in JSON that is handed back is delivered as text next time.
func ReadRabbitMQ(messageID, kind string, headers map[string]any, body []byte, contentType ...string) (*Received, error) {
	own := map[string]string{}
	properties := map[string]string{}
	for name, value := range headers {
		switch name {
		case "delayq-due", "delayq-attempt", "delayq-tags", "delayq-keys", "delayq-ordering-key":
			own[name] = fmt.Sprint(value)
		default:
			if !isBrokers(name) {
				properties[name] = fmt.Sprint(value)
			}
		}
	}
	due, err := unixMs(own["delayq-due"])
	message := &Received{
		ID: messageID, Topic: kind, Due: due, Attempt: attempt(own["delayq-attempt"]), Tags: own["delayq-tags"],
		Keys: strings.Fields(own["delayq-keys"]), OrderingKey: own["delayq-ordering-key"], Properties: properties, Body: body,
		ContentType: strings.Join(contentType, ""),
	}
	return message.checked(err)
}

// isBrokers is true of headers that RabbitMQ adds when it delivers a message again, or when a queue gave it up.
func isBrokers(header string) bool {
	for _, prefix := range []string{"x-death", "x-first-death-", "x-last-death-", "x-delivery-count", "x-acquired-count", "x-opt-"} {
		if strings.HasPrefix(header, prefix) {
			return true
		}
	}
	return false
}

// ReadRocketMQ reads a message that a RocketMQ consumer received: its topic, tag, keys, message group, properties and body.
func ReadRocketMQ(topic, tag string, keys []string, group string, given map[string]string, body []byte) (*Received, error) {
	properties := map[string]string{}
	for name, value := range given {
		if !strings.HasPrefix(name, "delayq_") {
			properties[name] = value
		}
	}
	var empty []string
	if names := given["delayq_empty"]; names != "" {
		if err := json.Unmarshal([]byte(names), &empty); err != nil {
			return nil, fmt.Errorf("delayq: the property delayq_empty: %w", err)
		}
	}
	for _, name := range empty {
		properties[name] = ""
	}
	if named := given["delayq_topic"]; named != "" {
		topic = named
	}
	due, err := unixMs(given["delayq_due"])
	message := &Received{
		ID: given["delayq_id"], Topic: topic, Due: due, Attempt: attempt(given["delayq_attempt"]), Tags: tag, Keys: keys,
		OrderingKey: group, Properties: properties, Body: body,
	}
	return message.checked(err)
}

func (r *Received) checked(err error) (*Received, error) {
	if r.ID == "" || r.Topic == "" || err != nil {
		return nil, errors.Join(errors.New("delayq: delayq did not send this message, or a header is damaged"), err)
	}
	return r, nil
}

func attempt(value string) int {
	count, err := strconv.Atoi(value)
	if err != nil {
		return 1
	}
	return count
}

func unixMs(value string) (time.Time, error) {
	ms, err := strconv.ParseInt(value, 10, 64)
	return time.UnixMilli(ms), err
}
