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
	wait, lease := "20s", "30s"
	for ctx.Err() == nil {
		messages, err := client.Receive(ctx, topic, delayq.ReceiveIn{Group: group, Wait: &wait, Lease: &lease})
		if err != nil && ctx.Err() == nil {
			log.Fatal(err) // refused, or no answer for 30 s
		}
		for _, message := range messages {
			// Without the signal: a message that was handled is acknowledged, also at the end of the program.
			if err := settle(context.WithoutCancel(ctx), client, message); err != nil {
				log.Println(message.Id, err) // the group receives it again when its lease ends
			}
		}
	}
}

func settle(ctx context.Context, client *delayq.Client, message delayq.ReceivedMessageOut) error {
	if failure := handle(message); failure != nil {
		fmt.Println(message.Id, "handed back:", failure)
		reason := failure.Error()
		back := []delayq.HandedBackIn{{Id: message.Id, Lease: message.Lease, Reason: &reason}}
		_, err := client.HandBack(ctx, topic, delayq.HandBackIn{Group: group, Messages: back})
		return err
	}
	fmt.Println(message.Id, "handled")
	leases := []delayq.LeaseIn{{Id: message.Id, Lease: message.Lease}}
	_, err := client.Ack(ctx, topic, delayq.LeasesIn{Group: group, Messages: leases})
	return err
}

// Your work: here the mail server is busy when "order 43" arrives for the first time.
func handle(message delayq.ReceivedMessageOut) error {
	if message.Body != nil && *message.Body == "order 43" && message.HandBacks == 0 {
		return errors.New("the mail server is busy")
	}
	return nil
}
