// node-redlock, as a program of the protocol in ../README.md.
import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import Redlock, { ExecutionError } from "redlock";

const clients = process.argv.slice(3).map((master) => new Redis(`redis://${master}`));
const redlock = new Redlock(clients);

// An attempt with the default number of retries takes about two seconds. The keys that it got on a
// minority of masters stay there until its last retry, and stop everyone meanwhile.
async function lock(name, ttl, wait) {
  const settings = wait === 0 ? { retryCount: 0 } : {};
  const end = Date.now() + wait;
  for (;;) {
    try {
      return await redlock.acquire([name], ttl, settings);
    } catch (error) {
      if (!(error instanceof ExecutionError) || Date.now() >= end) throw error;
    }
  }
}

async function count(name, ttl, millis, pause, path) {
  const end = Date.now() + millis;
  let [acquired, failed, longest] = [0, 0, 0];
  while (Date.now() < end) {
    const asked = Date.now();
    let held;
    try {
      held = await lock(name, ttl, 20_000);
    } catch {
      failed++;
      continue;
    }
    longest = Math.max(longest, Date.now() - asked);
    const number = Number(readFileSync(path, "utf8"));
    await sleep(1);
    writeFileSync(path, String(number + 1));
    acquired++;
    await held.release().catch(() => failed++);
    await sleep(pause);
  }
  return `counted ${acquired} ${failed} ${longest}`;
}

// The error says only that there was no majority. The votes say why.
async function reason(error) {
  const votes = await error.attempts.at(-1);
  return [...votes.votesAgainst.values()].map((against) => against.message).at(0);
}

const held = [];

async function answer([command, ...words]) {
  switch (command) {
    case "lock":
      try {
        held.push(await lock(words[0], Number(words[1]), Number(words[2])));
        return "locked";
      } catch (error) {
        if (!(error instanceof ExecutionError)) throw error;
        return `refused ${await reason(error)}`;
      }
    case "unlock":
      await held.pop().release();
      return "unlocked";
    case "count":
      return count(words[0], ...words.slice(1, 4).map(Number), words[4]);
    default:
      return "failed unknown command";
  }
}

function version(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version.replace("v", "");
}

await Promise.all(clients.map((client) => client.ping()));
console.log(`ready node-redlock ${version("redlock")}, ioredis ${version("ioredis")}, Node ${process.versions.node}`);
for await (const line of createInterface({ input: process.stdin })) {
  const reply = await answer(line.split(" ")).catch((error) => `failed ${error.message}`);
  console.log(reply.replaceAll("\n", " "));
}
process.exit();
