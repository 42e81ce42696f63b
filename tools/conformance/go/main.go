// A producer, an assigned consumer and a group over franz-go; the same command line and content as ../client.py.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		fail("not a number: %s", text)
	}
	return n
}

func main() {
	if len(os.Args) < 6 {
		fail("produce|consume BOOTSTRAP TOPIC PARTITION ...")
	}
	verb, bootstrap, topic, partition, rest := os.Args[1], os.Args[2], os.Args[3], int32(number(os.Args[4])), os.Args[5:]
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	switch verb {
	case "produce":
		produce(ctx, bootstrap, topic, partition, rest[0], number(rest[1]))
	case "group":
		group(ctx, bootstrap, topic, int(partition), rest[0], rest[1], number(rest[2]))
	case "consume":
		consume(ctx, bootstrap, topic, partition, number(rest[0]))
	default:
		fail("unknown verb %s", verb)
	}
}

func produce(ctx context.Context, bootstrap, topic string, partition int32, codec string, count int) {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codecs[codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond))
	if err != nil {
		fail("%v", err)
	}
	defer client.Close()
	records := make([]*kgo.Record, count)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Key: []byte(fmt.Sprintf("k%d", i)),
			Value:   []byte(strings.Repeat(fmt.Sprintf("v%d-", i), 1+i%7)),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte(strconv.Itoa(i))}, {Key: "n", Value: []byte{}}}}
	}
	results := client.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		fail("not acknowledged: %v", err)
	}
	low, high, distinct := int64(1<<62), int64(-1), map[int64]bool{}
	for _, r := range results {
		low, high, distinct[r.Record.Offset] = min(low, r.Record.Offset), max(high, r.Record.Offset), true
	}
	fmt.Println(low, high, len(distinct))
}

func consume(ctx context.Context, bootstrap, topic string, partition int32, count int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(0)}}))
	if err != nil {
		fail("%v", err)
	}
	defer client.Close()
	for got := 0; got < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			fail("no record: %v", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if got++; got > count {
				return
			}
			headers := make([]string, len(r.Headers))
			for i, h := range r.Headers {
				value := string(h.Value)
				if h.Value == nil {
					value = "null"
				}
				headers[i] = h.Key + "=" + value
			}
			fmt.Printf("%d %s %s %s\n", r.Offset, r.Key, r.Value, strings.Join(headers, ","))
		})
	}
}

// Members of one group, each on a goroutine, read count records from the earliest, commit them and leave.
func group(ctx context.Context, bootstrap, topic string, members int, name, protocol string, count int) {
	type line struct {
		member int
		record *kgo.Record
	}
	lines, done := make(chan line, count*members), make(chan error, members)
	read, cancel := context.WithCancel(ctx)
	for member := range members {
		options := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(time.Second)}
		if protocol == "consumer" {
			options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
		}
		client, err := kgo.NewClient(options...)
		if err != nil {
			fail("%v", err)
		}
		go func() {
			for read.Err() == nil {
				fetches := client.PollRecords(read, 20)
				fetches.EachRecord(func(r *kgo.Record) { lines <- line{member, r} })
				if err := client.CommitUncommittedOffsets(ctx); err != nil {
					fmt.Fprintln(os.Stderr, "commit:", err)
				}
			}
			client.Close()
			done <- nil
		}()
	}
	seen := map[[2]int64]bool{}
	for len(seen) < count {
		select {
		case l := <-lines:
			key := [2]int64{int64(l.record.Partition), l.record.Offset}
			if !seen[key] {
				seen[key] = true
				fmt.Printf("%d %d %d %s\n", l.member, l.record.Partition, l.record.Offset, l.record.Value)
			}
		case <-ctx.Done():
			fail("%d of %d records", len(seen), count)
		}
	}
	cancel()
	for range members {
		<-done
	}
}
