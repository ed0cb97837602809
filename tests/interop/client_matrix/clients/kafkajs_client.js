// One scenario with KafkaJS: `node kafkajs_client.js BOOTSTRAP SCENARIO TOPIC`.
//
// Runs in a folder of its own, so it requires nothing of this repository. Exit code 0 done, 77 the client has no such
// feature, anything else a failure whose last line says why.

const assert = require('assert')
const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const BOUND_MS = 40000
const ROWS = 200
const [bootstrap, scenario, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 8 } })
const value = (number) => `value-${number} ` + 'compressible '.repeat(20)
const rows = (from, to) => Array.from({ length: to - from }, (_, n) => ({ key: 'k', value: value(from + n) }))
const pause = (ms) => new Promise((done) => setTimeout(done, ms))

async function until(condition, what) {
  const ends = Date.now() + BOUND_MS
  while (!(await condition())) {
    assert(Date.now() < ends, `not in time: ${what}`)
    await pause(50)
  }
}

async function produce(messages, settings = {}, compression = CompressionTypes.None) {
  const producer = kafka.producer(settings)
  await producer.connect()
  await producer.send({ topic, messages, compression })
  await producer.disconnect()
}

async function consume(count, groupId, readUncommitted = false) {
  const consumer = kafka.consumer({ groupId, readUncommitted, heartbeatInterval: 300, maxWaitTimeInMs: 200 })
  const found = []
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => void found.push(message.value.toString()) })
  await until(() => found.length >= count, `${count} records, has ${found.length}`)
  await consumer.stop()
  await consumer.disconnect()
  return found
}

const expected = (from, to) => rows(from, to).map((row) => row.value)

async function codec(compression) {
  await produce(rows(0, ROWS), {}, compression)
  assert.deepStrictEqual(await consume(ROWS, topic), expected(0, ROWS))
}

async function idempotent() {
  await produce(rows(0, ROWS), { idempotent: true, maxInFlightRequests: 1 })
  assert.deepStrictEqual(await consume(ROWS, topic), expected(0, ROWS))
}

async function group() {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 4 }], waitForLeaders: true })
  const member = () => kafka.consumer({ groupId: topic, heartbeatInterval: 300, maxWaitTimeInMs: 200 }) // it beats between fetches
  const held = [[], []]
  const members = held.map(member)
  for (const [number, member] of members.entries()) {
    member.on(member.events.GROUP_JOIN, ({ payload }) => {
      held[number] = payload.memberAssignment[topic] || []
    })
    await member.connect()
    await member.subscribe({ topics: [topic], fromBeginning: true })
    await member.run({ eachMessage: async () => {} })
  }
  await until(() => held[0].length === 2 && held[1].length === 2, 'two members share four partitions')
  assert.deepStrictEqual([...held[0], ...held[1]].sort(), [0, 1, 2, 3])
  for (const member of members) await member.disconnect()
  await produce(rows(0, ROWS))
  assert.strictEqual((await consume(ROWS, topic)).length, ROWS)
  await produce(rows(ROWS, ROWS + 10))
  assert.deepStrictEqual((await consume(10, topic)).sort(), expected(ROWS, ROWS + 10).sort())
  const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
  const committed = partitions.map(({ offset }) => Math.max(Number(offset), 0)).reduce((a, b) => a + b)
  assert.strictEqual(committed, ROWS + 10)
  await admin.disconnect()
}

async function admin() {
  const client = kafka.admin()
  await client.connect()
  const configEntries = [{ name: 'retention.ms', value: '3600000' }]
  await client.createTopics({ topics: [{ topic, numPartitions: 2, configEntries }], waitForLeaders: true })
  await client.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  const partitions = async () => (await client.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
  await until(async () => (await partitions()) === 3, 'three partitions')
  const described = await client.describeConfigs({ resources: [{ type: 2, name: topic }] })
  const retention = described.resources[0].configEntries.find(({ configName }) => configName === 'retention.ms')
  assert.strictEqual(retention.configValue, '3600000')
  await produce(rows(0, 10))
  assert.strictEqual((await consume(10, topic)).length, 10)
  assert((await client.listGroups()).groups.some(({ groupId }) => groupId === topic))
  assert.strictEqual((await client.describeGroups([topic])).groups[0].state, 'Empty')
  await client.resetOffsets({ groupId: topic, topic, earliest: true })
  await client.deleteGroups([topic])
  await client.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '-1' }] })
  await client.deleteTopics({ topics: [topic] })
  await until(async () => !(await client.listTopics()).includes(topic), 'the topic is gone')
  await client.disconnect()
}

async function transactions() {
  await produce(rows(0, 1))
  const producer = kafka.producer({ transactionalId: `${topic}-id`, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const aborted = await producer.transaction()
  await aborted.send({ topic, messages: rows(100, 110) })
  await aborted.abort()
  const committed = await producer.transaction()
  await committed.send({ topic, messages: rows(1, 11) })
  const partitions = [{ partition: 0, offset: '1' }]
  await committed.sendOffsets({ consumerGroupId: topic, topics: [{ topic, partitions }] })
  await committed.commit()
  await producer.disconnect()
  assert.deepStrictEqual(await consume(11, `${topic}-2`), expected(0, 11))
  assert.strictEqual((await consume(21, `${topic}-3`, true)).length, 21)
}

const missing = async () => process.exit(77) // KafkaJS has these codecs only through packages of others
const scenarios = {
  none: () => codec(CompressionTypes.None),
  gzip: () => codec(CompressionTypes.GZIP),
  snappy: missing,
  lz4: missing,
  zstd: missing,
  idempotent,
  group,
  admin,
  transactions,
}

scenarios[scenario]().then(
  () => process.exit(0),
  (error) => {
    console.error(String(error.stack || error))
    console.error(String(error.message || error).split('\n')[0])
    process.exit(1)
  }
)
