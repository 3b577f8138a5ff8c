// Command story runs clients/story.json: story STORY RUN ROUNDS AT_ONCE. It prints how many calls it made, and fails at the first difference.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delayq/delayq/clients/go"
)

type step struct {
	Name   string         `json:"name"`
	Call   string         `json:"call"`
	With   map[string]any `json:"with"`
	Expect any            `json:"expect"`
}

type object = map[string]any

var ctx = context.Background()

func main() {
	story, run := must(os.ReadFile(os.Args[1])), os.Args[2]
	rounds, atOnce := int64(must(strconv.Atoi(os.Args[3]))), must(strconv.Atoi(os.Args[4]))
	client := must(delayq.New(os.Getenv("DELAYQ_API_URL"), delayq.WithGiveUpAfter(time.Minute)))
	var next, calls atomic.Int64
	var group sync.WaitGroup
	for range atOnce {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := next.Add(1) - 1; n < rounds; n = next.Add(1) - 1 {
				text := strings.NewReplacer("{n}", fmt.Sprint(n), "{run}", run).Replace(string(story))
				calls.Add(tell(client, text))
			}
		}()
	}
	group.Wait()
	fmt.Println(calls.Load())
}

// tell runs one round and returns its number of calls.
func tell(client *delayq.Client, text string) int64 {
	var story struct {
		Steps []step `json:"steps"`
	}
	check(json.Unmarshal([]byte(text), &story))
	earlier := object{}
	for _, one := range story.Steps {
		found := plain(perform(client, one, earlier))
		earlier[one.Name] = found
		if wrong := difference(found, one.Expect, earlier, nil); wrong != "" {
			panic(fmt.Sprintf("%s: %s", one.Name, wrong))
		}
	}
	return int64(len(story.Steps))
}

func perform(client *delayq.Client, one step, earlier object) any {
	text := func(name string) string { value, _ := one.With[name].(string); return value }
	switch one.Call {
	case "schedule":
		done, err := client.Schedule(ctx, message(one.With))
		return outcome(delayq.ScheduleResult{Scheduled: done, Err: err})
	case "scheduleMany":
		var messages []delayq.Message
		for _, given := range one.With["messages"].([]any) {
			messages = append(messages, message(given.(object)))
		}
		results := []any{}
		for _, result := range must(client.ScheduleMany(ctx, messages)) {
			results = append(results, outcome(result))
		}
		return object{"results": results}
	case "reschedule":
		done, err := client.Reschedule(ctx, text("id"), delayq.Due{DelayTime: must(time.ParseDuration(text("delayTime")))})
		return outcome(delayq.ScheduleResult{Scheduled: delayq.Scheduled{ScheduledOut: done}, Err: err})
	case "get":
		found, known, err := client.Get(ctx, text("id"))
		check(err)
		if !known {
			return nil
		}
		return object{"id": found.Id, "state": found.State, "topic": found.Message.Topic}
	case "find":
		count := 0
		for _, err := range client.Search(ctx, url.Values{"key": {text("key")}}) {
			check(err)
			count++
		}
		return object{"count": count}
	case "cancel":
		done := must(client.Cancel(ctx, text("id")))
		return object{"id": done.ID, "result": done.Result}
	case "cancelByKeys":
		var selection delayq.Selection
		for _, key := range one.With["keys"].([]any) {
			selection.Keys = append(selection.Keys, key.(string))
		}
		keys := []any{}
		for _, key := range must(client.CancelMany(ctx, selection)).Keys {
			results := []string{}
			for _, result := range key.Messages {
				if !slices.Contains(results, result.Result) {
					results = append(results, result.Result)
				}
			}
			keys = append(keys, object{"key": key.Key, "count": len(key.Messages), "results": results})
		}
		return object{"keys": keys}
	case "receive":
		max, wait, lease := int64(1), "20s", "1h"
		for {
			request := delayq.ReceiveIn{Group: text("group"), Max: &max, Wait: &wait, Lease: &lease}
			if found := must(client.Receive(ctx, text("topic"), request)); len(found) > 0 {
				return found[0]
			}
		}
	case "ack":
		id, lease := leaseOf(earlier[text("received")])
		leases := delayq.LeasesIn{Group: text("group"), Messages: []delayq.LeaseIn{{Id: id, Lease: lease}}}
		return must(client.Ack(ctx, text("topic"), leases))[0]
	case "handBack":
		id, lease := leaseOf(earlier[text("received")])
		messages := delayq.HandBackIn{Group: text("group"), Messages: []delayq.HandedBackIn{{Id: id, Lease: lease}}}
		return must(client.HandBack(ctx, text("topic"), messages))[0]
	case "verifyWebhook":
		header := http.Header{}
		for name, value := range one.With["headers"].(object) {
			header.Set(name, value.(string))
		}
		now := time.Unix(int64(one.With["now"].(float64)), 0)
		got, err := delayq.VerifyWebhook(header, []byte(text("body")), now, text("secret"))
		if errors.Is(err, delayq.ErrSignature) {
			return object{"refused": true}
		}
		check(err)
		return object{
			"id": got.ID, "topic": got.Topic, "dueMs": got.Due.UnixMilli(), "attempt": got.Attempt, "keys": got.Keys,
			"properties": got.Properties, "body": string(got.Body),
		}
	}
	panic("no such call: " + one.Call)
}

func leaseOf(received any) (id, lease string) {
	found := received.(object)
	return found["id"].(string), found["lease"].(string)
}

func message(given object) delayq.Message {
	text := func(name string) string { value, _ := given[name].(string); return value }
	made := delayq.Message{Topic: text("topic"), ID: text("id"), Body: given["body"]}
	if keys, found := given["keys"].([]any); found {
		for _, key := range keys {
			made.Keys = append(made.Keys, key.(string))
		}
	}
	if date := text("expectDate"); date != "" {
		made.ExpectDate = must(time.Parse(time.RFC3339, date))
	} else {
		made.DelayTime = must(time.ParseDuration(text("delayTime")))
		made.Now = made.DelayTime == 0
	}
	return made
}

func outcome(result delayq.ScheduleResult) any {
	var refused *delayq.RefusedError
	if errors.As(result.Err, &refused) {
		problem := object{"status": refused.Problem.Status, "kind": refused.Kind()}
		if refused.Problem.Field != nil {
			problem["field"] = *refused.Problem.Field
		}
		return object{"problem": problem}
	}
	check(result.Err)
	return object{"id": result.Id, "state": result.State, "dueMs": result.DueMs, "created": result.Created}
}

// difference says where what was found lacks what is expected; it is empty if it lacks nothing.
func difference(found, expected any, earlier object, path []string) string {
	switch wanted := expected.(type) {
	case object:
		if name, same := wanted["same"].(string); same {
			value := earlier[name]
			for _, part := range path {
				value = value.(object)[part]
			}
			return difference(found, value, nil, path)
		}
		given, _ := found.(object)
		for name, value := range wanted {
			if wrong := difference(given[name], value, earlier, append(slices.Clone(path), name)); wrong != "" {
				return wrong
			}
		}
		return ""
	case []any:
		given, _ := found.([]any)
		if len(given) != len(wanted) {
			return fmt.Sprintf("%v has %d items, not %d", path, len(given), len(wanted))
		}
		for at, value := range wanted {
			if wrong := difference(given[at], value, earlier, append(slices.Clone(path), fmt.Sprint(at))); wrong != "" {
				return wrong
			}
		}
		return ""
	}
	if found != expected {
		return fmt.Sprintf("%v is %v, not %v", path, found, expected)
	}
	return ""
}

// plain is a value as JSON reads it.
func plain(value any) (read any) {
	check(json.Unmarshal(must(json.Marshal(value)), &read))
	return read
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
