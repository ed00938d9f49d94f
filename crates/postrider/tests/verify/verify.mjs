// Verifies requests with npm `standardwebhooks`. Argument: the folder that holds its node_modules.
// Standard input: {"secret": "...", "requests": [{"headers": {...}, "body_base64": "..."}]}. Prints how many verified;
// fails with the first that does not.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const { Webhook } = createRequire(`${process.argv[2]}/package.json`)('standardwebhooks');
const { secret, requests } = JSON.parse(readFileSync(0, 'utf8'));
const webhook = new Webhook(secret);
for (const { headers, body_base64 } of requests) {
  const body = Buffer.from(body_base64, 'base64');
  webhook.verify(body.toString('utf8'), headers);
  try {
    webhook.verify(`${body.toString('utf8')} `, headers);
  } catch {
    continue;
  }
  throw new Error('a changed body was accepted');
}
console.log(requests.length);
