/** A program that embeds the operator client closes it while Temporal is away: operations fail, the program goes on. */
import http2 from 'node:http2';
import { connectOperator } from '../../client/connect.ts';
import { LOOPBACK, listen } from '../../dev/servers/ports.ts';

/** Codes of gRPC. */
const [UNIMPLEMENTED, UNAVAILABLE] = [12, 14];

test('an operation that is retried while Temporal is away fails when the client is closed, and ends no process', async () => {
  const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
  const server = http2.createServer();
  server.on('stream', (stream, { ':path': call = '' }) => {
    const code = call.endsWith('/GetSystemInfo') ? UNIMPLEMENTED : UNAVAILABLE;
    stream.respond({ 'content-type': 'application/grpc', 'grpc-status': code }, { endStream: true });
    if (code === UNAVAILABLE) answer();
  });
  const port = await listen(server);
  const { resources, close } = connectOperator({
    postgresDsn: 'postgres://nobody@127.0.0.1:1/none',
    redis: { host: LOOPBACK, port: 1 },
    temporal: { address: `${LOOPBACK}:${port}` },
  });
  const described = resources.temporal.workflow.getHandle('any').describe();
  const outcome = expect(described).rejects.toMatchObject({
    cause: { code: UNAVAILABLE },
  });
  await answered;
  // Answers come in order: when this one is there, the other waits for its retry.
  await expect(resources.temporal.workflowService.getSystemInfo({})).rejects.toThrow('UNIMPLEMENTED');
  await close();
  await outcome;
  server.close();
});
