/**
 * Makes queues on the first messaging router of `npm start`, as an application would, and prints them for
 * `galaxy-notify subscriptions import`: `node dev/queues.ts [user, default 1] [how many, default 1]`.
 */
import { loadConfig } from '../config/load.ts';
import { readStackEndpoints } from '../config/operator.ts';
import { makeQueues } from './stand-ins/subscription/queues.ts';

const [userId = 1, count = 1] = process.argv.slice(2).map(Number);
const stack = readStackEndpoints(loadConfig().values.NOTIFICATION_DATA_DIR);
const [server] = stack?.messagingRouters ?? [];
if (!server) throw new Error('no npm start runs messaging routers here');
const queues = await makeQueues(Array.from({ length: count }, () => ({ userId, server })));
process.stdout.write(`${JSON.stringify(queues, undefined, 2)}\n`);
