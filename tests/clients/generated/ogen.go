package main

import (
	"context"
	"fmt"
	"os"

	"delayq.io/generated/delayq"
	"github.com/ogen-go/ogen/ogenerrors"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

type noKey struct{}

func (noKey) Key(context.Context, delayq.OperationName) (delayq.Key, error) {
	return delayq.Key{}, ogenerrors.ErrSkipClientSecurity
}

func main() {
	ctx := context.Background()
	client := must(delayq.NewClient(os.Args[1], noKey{}))
	message := &delayq.MessageIn{
		Topic:     "orders.unpaid",
		DelayTime: delayq.NewOptString("30m"),
		ID:        delayq.NewOptString("use"),
		Keys:      []string{"order-42"},
		Body:      []byte(`{"order": 42}`),
	}
	scheduled := must(client.ScheduleMessage(ctx, message)).(*delayq.ScheduleMessageCreated)
	fmt.Println(scheduled.State)
	found := must(client.GetMessage(ctx, delayq.GetMessageParams{ID: "use"})).(*delayq.StateOut)
	fmt.Println(found.Message.Value.Keys[0], found.DueMs.Value > 1<<32)
	cancelled := must(client.CancelMessages(ctx, &delayq.CancelIn{Keys: []string{"order-42"}})).(*delayq.ResultsOut)
	fmt.Println(cancelled.Results[0].Messages[0].Result.Value)
	again := must(client.ScheduleMessage(ctx, message)).(*delayq.ScheduleMessageConflict)
	fmt.Println(again.Type)
}
