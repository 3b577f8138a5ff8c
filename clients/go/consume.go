package delayq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	defaultConcurrency = 8
	mostHandlers       = 500
	longestLease       = 12 * time.Hour
	longestWait        = 20 * time.Second // for messages, in one call
	firstPause         = 500 * time.Millisecond
	longestPause       = 5 * time.Second
	longestLook        = 5 * time.Second // for messages that an interrupted call leased
	mostReason         = 200             // characters
)

// ConsumeOptions say how to consume. The zero value is fine.
type ConsumeOptions struct {
	Concurrency int           // how many handlers run at the same time, at most 500. Default: 8
	Lease       time.Duration // from 1 s; renewed after each third of it while a handler runs. Default: 30 s
	MaxLease    time.Duration // how long the lease of one message is renewed, at most 12 h. Default: 1 h
	Start       string        // where a new group begins: beginning, end or a time
	Tags        []string      // the filter of the group
	Logger      *slog.Logger  // gets the warnings: a lost acknowledgement, a message that could not be settled. Default: slog.Default
}

// Handler handles a message. Its context ends when the lease of the message is lost, or is not renewed any more.
type Handler func(ctx context.Context, message *Leased) error

// Consume calls a handler with each message of a topic, as a consumer of a group, until the context ends. Then it waits for the
// handlers that run, and returns nil.
//
// A message is acknowledged when its handler returns nil, and handed back after an error or a panic. Its lease is renewed while the
// handler runs, up to MaxLease. Messages of one ordering key are handled one after another. While the API is away or busy, Consume
// tries again; it returns a *RefusedError if the API refuses to give messages.
func (c *Client) Consume(ctx context.Context, topic, group string, handler Handler, options ConsumeOptions) error {
	if options.Concurrency == 0 {
		options.Concurrency = defaultConcurrency
	}
	if options.Lease == 0 {
		options.Lease = 30 * time.Second
	}
	if options.MaxLease == 0 {
		options.MaxLease = max(time.Hour, options.Lease)
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	if options.Concurrency < 1 || options.Concurrency > mostHandlers {
		return fmt.Errorf("delayq: Concurrency is from 1 to %d", mostHandlers)
	}
	if options.Lease < time.Millisecond || options.MaxLease < options.Lease || options.MaxLease > longestLease {
		return errors.New("delayq: MaxLease is at least the Lease, and at most 12 h")
	}
	loop := &consumption{
		client: c, topic: topic, group: group, handler: handler, options: options,
		background: context.WithoutCancel(ctx), changed: make(chan struct{}, 1),
	}
	return loop.run(ctx)
}

// held is a message whose lease this consumer has.
type held struct {
	message   *Leased
	since     time.Time // when it was received
	ctx       context.Context
	cancel    context.CancelCauseFunc
	isRunning bool
	isLost    bool // the lease is lost or too old, so that it is not renewed
	isDone    bool // it was handled, and is to be acknowledged
}

// consumption is the loop of one Consume.
type consumption struct {
	client       *Client
	topic, group string
	handler      Handler
	options      ConsumeOptions
	background   context.Context // does not end: messages that were handled are settled, also at the end
	changed      chan struct{}
	handlers     sync.WaitGroup

	mutex           sync.Mutex
	held            []*held // in the order of their arrival
	running         int
	done            []*held // to be acknowledged
	isAcknowledging bool
	isStopped       bool
}

func (l *consumption) run(ctx context.Context) error {
	renewing, stop := context.WithCancel(l.background)
	var renewal sync.WaitGroup
	renewal.Add(1)
	go func() {
		defer renewal.Done()
		l.renew(renewing)
	}()
	err := l.receive(ctx)
	l.release()
	l.handlers.Wait()
	stop()
	renewal.Wait()
	if len(l.done) > 0 {
		results, failure := l.client.Ack(l.background, l.topic, LeasesIn{Group: l.group, Messages: leasesOf(l.done)})
		l.logUnsettled(l.done, results, failure)
	}
	return err
}

// receive receives messages until the context ends, or the API refuses the call.
func (l *consumption) receive(ctx context.Context) error {
	pause, call := firstPause, newID()
	for ctx.Err() == nil {
		most := l.room()
		if most == 0 {
			select {
			case <-l.changed:
			case <-ctx.Done():
			}
			continue
		}
		wait, lease := duration(longestWait), duration(l.options.Lease)
		request := ReceiveIn{Group: l.group, Max: &most, Wait: &wait, Lease: &lease, Call: &call}
		if l.options.Start != "" {
			request.Start = &l.options.Start
		}
		if len(l.options.Tags) > 0 {
			request.Tags = &l.options.Tags
		}
		messages, err := l.client.Receive(ctx, l.topic, request)
		switch {
		case err == nil:
			l.add(messages, ctx.Err() == nil)
			pause, call = firstPause, newID()
		case ctx.Err() != nil:
			l.takeInterrupted(request)
		case !isPassing(err):
			return err
		default:
			l.options.Logger.Warn("delayq: cannot receive messages, trying again", "topic", l.topic, "error", err)
			sleep(ctx, pause)
			pause = min(2*pause, longestPause)
		}
	}
	return nil
}

// takeInterrupted takes what an interrupted call leased, to give it back: a repeated call gets the same messages.
func (l *consumption) takeInterrupted(request ReceiveIn) {
	ctx, cancel := context.WithTimeout(l.background, longestLook)
	defer cancel()
	wait := "0ms"
	request.Wait = &wait
	messages, err := l.client.Receive(ctx, l.topic, request)
	if err == nil { // else their leases end, and the group receives them again
		l.add(messages, false)
	}
}

// room is how many more messages there is work for. Messages behind others of their ordering keys do not count as work.
func (l *consumption) room() int64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return int64(max(0, min(l.options.Concurrency-l.running, 2*l.options.Concurrency-len(l.held))))
}

func (l *consumption) add(messages []Leased, start bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := time.Now()
	for at := range messages {
		ctx, cancel := context.WithCancelCause(l.background)
		l.held = append(l.held, &held{message: &messages[at], since: now, ctx: ctx, cancel: cancel})
	}
	l.isStopped = !start
	l.start()
}

// start starts handlers: messages of one ordering key run one after another, in their order. The mutex is locked.
func (l *consumption) start() {
	keys := map[string]bool{}
	for _, one := range l.held {
		if one.isDone {
			continue
		}
		key := ""
		if one.message.OrderingKey != nil {
			key = *one.message.OrderingKey
		}
		isBehind := key != "" && keys[key]
		keys[key] = true
		if one.isRunning || isBehind || l.isStopped || l.running >= l.options.Concurrency {
			continue
		}
		one.isRunning = true
		l.running++
		l.handlers.Add(1)
		go l.handle(one)
	}
}

func (l *consumption) handle(one *held) {
	defer l.handlers.Done()
	err := l.call(one)
	l.mutex.Lock()
	one.isDone = true
	if err == nil {
		l.done = append(l.done, one)
	} else {
		l.drop(one)
	}
	l.mutex.Unlock()
	if err == nil {
		l.acknowledge()
	} else {
		reason := reasonOf(err)
		back := HandBackIn{Group: l.group, Messages: []HandedBackIn{{Id: one.message.Id, Lease: one.message.Lease, Reason: &reason}}}
		results, err := l.client.HandBack(l.background, l.topic, back)
		l.logUnsettled([]*held{one}, results, err)
	}
	l.mutex.Lock()
	l.running--
	l.start()
	l.mutex.Unlock()
	l.notify()
}

// notify lets receive look for room again.
func (l *consumption) notify() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// call calls the handler on a goroutine of its own, because a handler may end its goroutine by runtime.Goexit.
func (l *consumption) call(one *held) error {
	ended := make(chan error, 1)
	go func() {
		err := errors.New("the handler ended its goroutine")
		defer func() {
			if failure := recover(); failure != nil {
				err = fmt.Errorf("panic: %v", failure)
				l.options.Logger.Error("delayq: a handler panicked", "id", one.message.Id, "panic", failure, "stack", string(debug.Stack()))
			}
			ended <- err
		}()
		err = l.handler(one.ctx, one.message)
	}()
	return <-ended
}

// acknowledge acknowledges what is done. Handlers that end during the call leave their messages to the one that made it.
func (l *consumption) acknowledge() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.isAcknowledging {
		return
	}
	l.isAcknowledging = true
	for len(l.done) > 0 {
		done := l.done
		l.done = nil
		for _, one := range done {
			l.drop(one)
		}
		l.mutex.Unlock()
		results, err := l.client.Ack(l.background, l.topic, LeasesIn{Group: l.group, Messages: leasesOf(done)})
		var failed, settled []*held
		var answers []LeaseOut
		why := err
		for at, one := range done {
			switch {
			case isPassing(err):
				failed = append(failed, one)
			case err == nil && results[at].Problem != nil && isPassingProblem(results[at].Problem):
				failed, why = append(failed, one), errors.New(results[at].Problem.Detail)
			case err == nil:
				settled, answers = append(settled, one), append(answers, results[at])
			default:
				settled = append(settled, one)
			}
		}
		l.logUnsettled(settled, answers, err)
		if len(failed) > 0 {
			l.options.Logger.Warn("delayq: cannot acknowledge messages, trying again", "topic", l.topic, "messages", len(failed), "error", why)
		}
		l.mutex.Lock()
		if len(failed) > 0 { // their leases are renewed until the API is back
			l.held = append(l.held, failed...)
			l.done = append(failed, l.done...)
			break
		}
	}
	l.isAcknowledging = false
}

// release gives messages that no handler has begun to other consumers.
func (l *consumption) release() {
	l.mutex.Lock()
	l.isStopped = true
	left := slices.DeleteFunc(slices.Clone(l.held), func(one *held) bool { return one.isRunning })
	for _, one := range left {
		l.drop(one)
	}
	l.mutex.Unlock()
	if len(left) > 0 {
		lease := "0ms"
		results, err := l.client.Extend(l.background, l.topic, ExtendIn{Group: l.group, Messages: leasesOf(left), Lease: &lease})
		l.logUnsettled(left, results, err)
	}
}

// drop takes a message from those that are held. The mutex is locked.
func (l *consumption) drop(one *held) {
	l.held = slices.DeleteFunc(l.held, func(other *held) bool { return other == one })
	one.cancel(nil)
}

// renew renews the leases of all messages together, after each third of a lease.
func (l *consumption) renew(ctx context.Context) {
	ticker := time.NewTicker(l.options.Lease / 3)
	defer ticker.Stop()
	lease := duration(l.options.Lease)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		renewed := l.renewable()
		if len(renewed) == 0 {
			continue
		}
		results, err := l.client.Extend(ctx, l.topic, ExtendIn{Group: l.group, Messages: leasesOf(renewed), Lease: &lease})
		if err != nil {
			if ctx.Err() == nil {
				l.options.Logger.Warn("delayq: cannot renew leases", "topic", l.topic, "messages", len(renewed), "error", err)
			}
			continue
		}
		l.mutex.Lock()
		for at, result := range results {
			if isLost(result) {
				l.lose(renewed[at], "the lease was lost, and the message may be received again")
			}
		}
		l.mutex.Unlock()
		l.acknowledge() // what could not be acknowledged while the API was away
		l.mutex.Lock()
		l.start() // messages that are gone may have been in the way of others
		l.mutex.Unlock()
		l.notify()
	}
}

// renewable returns the messages whose leases are renewed now. Those that are too old are not renewed any more.
func (l *consumption) renewable() []*held {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now := time.Now()
	var renewed []*held
	for _, one := range slices.Clone(l.held) {
		age := now.Sub(one.since)
		if age >= l.options.MaxLease {
			l.lose(one, "the lease is not renewed any more, because MaxLease is over")
		} else if !one.isLost && age+l.options.Lease <= l.options.MaxLease {
			renewed = append(renewed, one)
		}
	}
	return renewed
}

// lose renews the lease of a message no more, unless the message was settled meanwhile. Its handler learns it from its context. The
// mutex is locked.
func (l *consumption) lose(one *held, why string) {
	if one.isLost || !slices.Contains(l.held, one) {
		return
	}
	one.isLost = true
	l.options.Logger.Warn("delayq: "+why, "id", one.message.Id, "topic", l.topic)
	one.cancel(errors.New(why))
	if !one.isRunning {
		l.drop(one)
	}
}

// isLost reports whether the lease is lost, or its group was deleted.
func isLost(result LeaseOut) bool {
	return result.Result != nil && (*result.Result == "lost" || *result.Result == "notFound")
}

// logUnsettled logs what is lost: the group receives these messages again.
func (l *consumption) logUnsettled(messages []*held, results []LeaseOut, err error) {
	for at, one := range messages {
		switch {
		case err != nil:
			l.options.Logger.Warn("delayq: a message could not be settled, and is received again", "id", one.message.Id, "topic", l.topic, "error", err)
		case isLost(results[at]):
			l.options.Logger.Warn("delayq: the lease was lost before the message was settled, and it may be received again", "id", one.message.Id, "topic", l.topic)
		case results[at].Problem != nil:
			l.options.Logger.Warn("delayq: a message could not be settled, and is received again", "id", one.message.Id, "topic", l.topic, "error", results[at].Problem.Detail)
		}
	}
}

func leasesOf(messages []*held) []LeaseIn {
	leases := make([]LeaseIn, len(messages))
	for at, one := range messages {
		leases[at] = LeaseIn{Id: one.message.Id, Lease: one.message.Lease}
	}
	return leases
}

// reasonOf is the reason of a hand-back, as one line.
func reasonOf(err error) string {
	line := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "\uFFFD")), " ")
	if characters := []rune(line); len(characters) > mostReason {
		return string(characters[:mostReason])
	}
	return line
}

// sleep waits, at most until the context ends.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
