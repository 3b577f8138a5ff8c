// Drives BullMQ for ./dev bench peers: the words and the answers are those of go/main.go. `bulk` takes the place of
// callers: that many messages go in one addBulk.
"use strict";

const { Queue, Worker } = require("bullmq");

const NAME = "bench";
const CALLERS = 64;
const DAY = 86_400_000;
const TEXT = "order customer courier restaurant address payment ".repeat(4).slice(0, 186);
const REMOVED = { removeOnComplete: true, removeOnFail: true };

const body = (due) => ({ due, text: TEXT });
const rateSince = (began, count) => ({ rate: count / ((performance.now() - began) / 1000) });
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

async function schedule(queue, count, callers, delay) {
  let left = count;
  const caller = async () => {
    while (left-- > 0) {
      const wait = Math.max(0, delay());
      await queue.add(NAME, body(Date.now() + wait), { ...REMOVED, delay: wait });
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
}

async function bulk(queue, count, together) {
  for (let done = 0; done < count; done += together) {
    const due = Date.now() + DAY;
    const one = { name: NAME, data: body(due), opts: { ...REMOVED, delay: DAY } };
    await queue.addBulk(Array(Math.min(together, count - done)).fill(one));
  }
}

async function produce(queue, count, rate) {
  const start = performance.now();
  const sent = [];
  let late = 0;
  while (sent.length < count) {
    const planned = start + (1000 * sent.length) / rate;
    if (planned > performance.now()) {
      await sleep(1);
      continue;
    }
    late = Math.max(late, performance.now() - planned);
    const delay = 1000 * (1 + Math.floor(3 * Math.random()));
    sent.push(queue.add(NAME, body(Date.now() + delay), { ...REMOVED, delay }));
  }
  await Promise.all(sent);
  return { late };
}

function consume(connection, count, from) {
  const late = [];
  return new Promise((resolve, reject) => {
    const take = async (job) => {
      late.push(performance.timeOrigin + performance.now() - job.data.due);
      if (late.length < count) return;
      const seconds = (Date.now() - from) / 1000;
      late.sort((one, other) => one - other);
      resolve({
        seconds,
        early: late.filter((one) => one < 0).length,
        p50: late[Math.floor(count / 2)],
        p99: late[Math.floor((count * 99) / 100)],
      });
    };
    new Worker(NAME, take, { connection, concurrency: CALLERS, ...REMOVED }).on("error", reject);
  });
}

async function main([, , action, address, ...numbers]) {
  const [host, port] = address.split(":");
  const [count, number] = numbers.map(Number);
  const connection = { host, port: Number(port) };
  if (action === "consume") return consume(connection, count, number);
  const queue = new Queue(NAME, { connection });
  await queue.waitUntilReady();
  const began = performance.now();
  if (action === "produce") return produce(queue, count, number);
  if (action === "backlog") return schedule(queue, count, CALLERS, () => number - Date.now());
  if (action === "bulk") await bulk(queue, count, number);
  else await schedule(queue, count, number, () => DAY);
  return rateSince(began, count);
}

main(process.argv).then(
  (found) => {
    console.log(JSON.stringify(found ?? {}));
    process.exit(0);
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
