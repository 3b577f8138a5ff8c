package main

import (
	"context"
	"fmt"
	"os"

	"delayq.io/generated/delayq"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	ctx := context.Background()
	client := must(delayq.NewClientWithResponses(os.Args[1]))
	delay, id, keys := "30m", "use", []string{"order-42"}
	message := delayq.MessageIn{Topic: "orders.unpaid", DelayTime: &delay, Id: &id, Keys: &keys, Body: map[string]int{"order": 42}}
	scheduled := must(client.ScheduleMessageWithResponse(ctx, message))
	fmt.Println(scheduled.JSON201.State)
	found := must(client.GetMessageWithResponse(ctx, id, nil))
	fmt.Println((*found.JSON200.Message.Keys)[0], *found.JSON200.DueMs > 1<<32)
	cancelled := must(client.CancelMessagesWithResponse(ctx, delayq.CancelIn{Keys: &keys}))
	fmt.Println(*(*cancelled.JSON200.Results[0].Messages)[0].Result)
	again := must(client.ScheduleMessageWithResponse(ctx, message))
	fmt.Println(again.ApplicationproblemJSON409.Type)
}
