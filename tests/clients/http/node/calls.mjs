// Schedules a message by each client with its defaults, and prints "name status".
import http from "node:http";
import { createRequire } from "node:module";

const require = createRequire(`${process.argv[3]}/`);
const axios = require("axios");
const undici = require("undici");
const url = `${process.argv[2]}/v1/messages`;
const message = (name) => ({ topic: "any", id: name, body: { by: name }, delayTime: "1h" });
const post = (name) => ({ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(message(name)) });

const calls = {
  fetch: async () => (await fetch(url, post("fetch"))).status,
  undici: async () => (await undici.request(url, post("undici"))).statusCode,
  axios: async () => (await axios.post(url, message("axios"))).status,
  "node-http": () =>
    new Promise((resolve, reject) => {
      const { body, ...options } = post("node-http");
      http.request(url, options, (answer) => resolve(answer.statusCode)).on("error", reject).end(body);
    }),
};
for (const [name, call] of Object.entries(calls)) console.log(name, await call());
