// Receives messages over HTTP, acknowledges those that it handled, and hands back the others.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/delayq/delayq/clients/go"
)

const topic, group = "orders.shipped", "mail"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := delayq.New(os.Getenv("DELAYQ_API_URL"), delayq.WithAPIKey(os.Getenv("DELAYQ_API_KEY")))
	if err != nil {
		log.Fatal(err)
	}
	// It renews the leases of the messages while they are handled, and tries again while the API is away.
	if err := client.Consume(ctx, topic, group, consume, delayq.ConsumeOptions{}); err != nil {
		log.Fatal(err) // refused
	}
}

// consume acknowledges the message if it returns nil. After an error, the group receives the message again later.
func consume(_ context.Context, message *delayq.Leased) error {
	if failure := handle(message); failure != nil {
		fmt.Println(message.Id, "handed back:", failure)
		return failure
	}
	fmt.Println(message.Id, "handled")
	return nil
}

// Your work: here the mail server is busy when "order 43" arrives for the first time.
func handle(message *delayq.Leased) error {
	if message.Text() == "order 43" && message.HandBacks == 0 {
		return errors.New("the mail server is busy")
	}
	return nil
}
