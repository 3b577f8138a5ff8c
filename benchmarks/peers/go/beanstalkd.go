package main

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

const (
	priority    = 1024
	timeToRun   = time.Minute
	connections = 16
)

type beanstalkdPeer struct{ address string }

func newBeanstalkd(address string) peer { return beanstalkdPeer{address} }

// A connection for each caller: one takes one command at a time.
func (one beanstalkdPeer) scheduler() func([]byte, time.Duration) error {
	connection, err := beanstalk.Dial("tcp", one.address)
	check(err)
	return func(body []byte, delay time.Duration) error {
		whole := time.Duration(math.Ceil(delay.Seconds())) * time.Second
		_, err := connection.Put(body, priority, whole, timeToRun)
		return err
	}
}

// What is due at a moment, in whole seconds, is so within the second after it. Then it is taken.
func (one beanstalkdPeer) consume(from time.Time, take func([]byte) bool) error {
	time.Sleep(time.Until(from))
	done := make(chan struct{})
	finish := sync.OnceFunc(func() { close(done) })
	for range connections {
		connection, err := beanstalk.Dial("tcp", one.address)
		if err != nil {
			return err
		}
		go func() {
			for {
				id, body, err := connection.Reserve(time.Second)
				if errors.Is(err, beanstalk.ErrTimeout) {
					continue
				}
				check(err)
				last := take(body)
				check(connection.Delete(id))
				if last {
					finish()
				}
			}
		}()
	}
	<-done
	return nil
}
