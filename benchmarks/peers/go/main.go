// Drives asynq and beanstalkd for ./dev bench peers; every peer's program takes the same words and prints JSON.
//
//	PEER schedule ADDRESS COUNT CALLERS   schedule so many messages, due in a day; prints messages a second
//	PEER backlog  ADDRESS COUNT MOMENT    schedule so many messages that are due at a moment (Unix ms)
//	PEER produce  ADDRESS COUNT RATE      schedule at a rate, with delays of 1 to 3 whole seconds, in an open loop
//	PEER consume  ADDRESS COUNT FROM      take and acknowledge so many messages; prints seconds since FROM (Unix ms), and
//	                                      how late they came by the due that the producer wrote into the body
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	bodyBytes = 200
	callers   = 64
	producers = 16
	day       = 24 * time.Hour
)

// A peer puts messages and takes them.
type peer interface {
	// A function for one caller that schedules one message.
	scheduler() func(body []byte, delay time.Duration) error
	// Hand messages to `take` until it says that it was the last; from a moment on where nothing else falls due at once.
	consume(from time.Time, take func(body []byte) (last bool)) error
}

var peers = map[string]func(address string) peer{"asynq": newAsynq, "beanstalkd": newBeanstalkd}

func main() {
	if len(os.Args) != 6 {
		log.Fatal("usage: PEER ACTION ADDRESS COUNT NUMBER")
	}
	one := peers[os.Args[1]](os.Args[3])
	count, number := integer(os.Args[4]), integer(os.Args[5])
	found := map[string]float64{}
	switch os.Args[2] {
	case "schedule":
		began := time.Now()
		schedule(one, count, number, func() time.Duration { return day })
		found = map[string]float64{"rate": float64(count) / time.Since(began).Seconds()}
	case "backlog":
		moment := time.UnixMilli(int64(number))
		schedule(one, count, callers, func() time.Duration { return time.Until(moment) })
	case "produce":
		found = produce(one, count, number)
	case "consume":
		found = consume(one, count, time.UnixMilli(int64(number)))
	default:
		log.Fatalf("there is no %s", os.Args[2])
	}
	check(json.NewEncoder(os.Stdout).Encode(found))
}

func schedule(one peer, count, callers int, delay func() time.Duration) {
	var left atomic.Int64
	left.Store(int64(count))
	var all sync.WaitGroup
	for range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			send := one.scheduler()
			for left.Add(-1) >= 0 {
				wait := delay()
				check(send(body(time.Now().Add(wait)), wait))
			}
		}()
	}
	all.Wait()
}

func produce(one peer, count, rate int) map[string]float64 {
	planned := make(chan time.Time, count)
	var all sync.WaitGroup
	for range producers {
		all.Add(1)
		go func() {
			defer all.Done()
			send := one.scheduler()
			for range planned {
				wait := time.Duration(1+rand.Intn(3)) * time.Second
				check(send(body(time.Now().Add(wait)), wait))
			}
		}()
	}
	start, late := time.Now(), time.Duration(0)
	for number := range count {
		moment := start.Add(time.Duration(number) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(moment))
		late = max(late, time.Since(moment))
		planned <- moment
	}
	close(planned)
	all.Wait()
	return map[string]float64{"late": milliseconds(late)}
}

func consume(one peer, count int, from time.Time) map[string]float64 {
	var lock sync.Mutex
	late := make([]float64, 0, count)
	check(one.consume(from, func(body []byte) bool {
		arrived := time.Now()
		due, _, _ := strings.Cut(string(body), " ")
		lock.Lock()
		defer lock.Unlock()
		late = append(late, float64(arrived.UnixMicro())/1000-float64(integer(due)))
		return len(late) >= count
	}))
	end := time.Now()
	slices.Sort(late)
	early := 0
	for early < len(late) && late[early] < 0 {
		early++
	}
	return map[string]float64{
		"seconds": end.Sub(from).Seconds(), "early": float64(early),
		"p50": late[len(late)/2], "p99": late[len(late)*99/100],
	}
}

// What a message has, behind its due.
var text = strings.Repeat("order customer courier restaurant address payment ", 4)[:bodyBytes-14]

func body(due time.Time) []byte {
	return fmt.Appendf(nil, "%013d %s", due.UnixMilli(), text)
}

func integer(text string) int {
	number, err := strconv.Atoi(text)
	check(err)
	return number
}

func milliseconds(some time.Duration) float64 { return float64(some.Microseconds()) / 1000 }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
