package main

import (
	"context"
	"time"

	"github.com/hibiken/asynq"
)

const asynqTask = "bench"

type asynqPeer struct {
	at     asynq.RedisClientOpt
	client *asynq.Client // meant to be shared by all callers
}

func newAsynq(address string) peer {
	at := asynq.RedisClientOpt{Addr: address, PoolSize: callers}
	return asynqPeer{at, asynq.NewClient(at)}
}

func (one asynqPeer) scheduler() func([]byte, time.Duration) error {
	return func(body []byte, delay time.Duration) error {
		_, err := one.client.Enqueue(asynq.NewTask(asynqTask, body), asynq.ProcessIn(delay))
		return err
	}
}

func (one asynqPeer) consume(_ time.Time, take func([]byte) bool) error {
	server := asynq.NewServer(one.at, asynq.Config{
		Concurrency:              callers,
		DelayedTaskCheckInterval: 100 * time.Millisecond, // 5 s, unless it is told
		TaskCheckInterval:        10 * time.Millisecond,  // 1 s, unless it is told
		LogLevel:                 asynq.ErrorLevel,
	})
	done := make(chan struct{})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if take(task.Payload()) {
			close(done)
		}
		return nil
	}))
	if err != nil {
		return err
	}
	<-done
	return nil
}
