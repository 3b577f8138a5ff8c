package delayq

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"testing"
	"time"
)

const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func signed(body string, at time.Time) http.Header {
	hash := hmac.New(sha256.New, []byte("0123456789abcdef0123456789abcdef"))
	fmt.Fprintf(hash, "shop~42.%d.%s", at.Unix(), body)
	header := http.Header{}
	for name, value := range map[string]string{
		"ce-id": "other", "ce-type": "orders%20x", "ce-time": "2033-01-31T08:00:00.000Z", "ce-attempt": "2", "ce-keys": "a%20b",
		"delayq-properties": `{"color":"r\u00f6t"}`, "webhook-id": "shop~42", "webhook-timestamp": fmt.Sprint(at.Unix()),
		"webhook-signature": "v1,AAAA v1," + base64.StdEncoding.EncodeToString(hash.Sum(nil)),
	} {
		header.Set(name, value)
	}
	return header
}

func TestASignedWebhookIsReadAndEverythingElseIsRefused(t *testing.T) {
	now := time.Unix(1_990_000_000, 0)
	header := signed(`{"order":42}`, now)
	message, err := VerifyWebhook(header, []byte(`{"order":42}`), now, "whsec_AAAA", secret)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, []any{message.ID, message.Topic, message.Attempt, message.Keys}, []any{"shop.42", "orders x", 2, []string{"a", "b"}})
	equal(t, message.Properties, map[string]string{"color": "röt"})
	equal(t, message.Due.UTC(), time.Date(2033, 1, 31, 8, 0, 0, 0, time.UTC))
	var order struct{ Order int }
	if err := message.JSON(&order); err != nil || order.Order != 42 {
		t.Fatal(err, order)
	}
	changed := header.Clone()
	changed.Set("webhook-id", "shop~43")
	for _, wrong := range []struct {
		header http.Header
		body   string
		at     time.Time
	}{{header, `{"order":43}`, now}, {header, `{"order":42}`, now.Add(301 * time.Second)}, {changed, `{"order":42}`, now}, {http.Header{}, "", now}} {
		if _, err := VerifyWebhook(wrong.header, []byte(wrong.body), wrong.at, secret); err != ErrSignature {
			t.Fatal(wrong, err)
		}
	}
}

func TestMessagesOfEachBrokerAreReadAlike(t *testing.T) {
	due, body := "1990000000000", []byte("hello")
	kafka := map[string]string{"id": "a", "due": due, "attempt": "1", "tags": "new", "keys": "k1 k2", "ordering-key": "o", "p:p": "1"}
	rabbit := map[string]any{"delayq-due": int64(1990000000000), "delayq-attempt": 1, "delayq-tags": "new", "delayq-keys": "k1 k2", "delayq-ordering-key": "o", "p": "1"}
	rocket := map[string]string{"delayq_id": "a", "delayq_due": due, "delayq_attempt": "1", "p": "1"}
	webhook := http.Header{}
	for name, value := range map[string]string{
		"ce-id": "a", "ce-type": "orders", "ce-time": "2033-01-22T09:46:40.000Z", "ce-tags": "new", "ce-keys": "k1%20k2", "ce-partitionkey": "o", "delayq-properties": `{"p":"1"}`,
	} {
		webhook.Set(name, value)
	}
	expected := Received{
		ID: "a", Topic: "orders", Due: time.UnixMilli(1990000000000).UTC(), Attempt: 1, Tags: "new", Keys: []string{"k1", "k2"}, OrderingKey: "o",
		Properties: map[string]string{"p": "1"}, Body: body,
	}
	for name, read := range map[string]func() (*Received, error){
		"kafka":  func() (*Received, error) { return ReadKafka("orders", kafka, body) },
		"rabbit": func() (*Received, error) { return ReadRabbitMQ("a", "orders", rabbit, body) },
		"rocket": func() (*Received, error) {
			return ReadRocketMQ("orders", "new", []string{"k1", "k2"}, "o", rocket, body)
		},
		"webhook": func() (*Received, error) { return ReadWebhook(webhook, body) },
	} {
		found, err := read()
		if err != nil {
			t.Fatal(name, err)
		}
		found.Due = found.Due.UTC()
		equal(t, *found, expected)
	}
	if _, err := ReadKafka("orders", nil, body); err == nil {
		t.Fatal("a message of nobody was read")
	}
}
