#pragma once
// The station's reading of experts, ahead of sending, within a bounded memory.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "k3pod/experts/shard_source.h"

namespace k3pod::exchange {

using StreamId = uint64_t;  // one node's session; never used twice

struct WantedShard {
    uint32_t index = 0;  // in the stream's list
    Shard shard;
};

// What has been read of one shard, or why it cannot be. The bytes count as held until the last
// pointer to them is gone, which must be before the reader's end.
struct ReadShard {
    StreamId stream = 0;
    uint32_t index = 0;
    std::shared_ptr<const PackedShard> packed;
    Status status;
};

class StageReader {
  public:
    // `on_ready` is called on the reading threads whenever take() has something new.
    StageReader(const ShardSource& source, int64_t buffer_bytes, int32_t num_threads,
                std::function<void()> on_ready);
    ~StageReader();
    StageReader(const StageReader&) = delete;
    StageReader& operator=(const StageReader&) = delete;

    // Ends the threads; nothing is read, and on_ready is not called, any more.
    void stop();

    // All: any thread.
    void want(StreamId stream, std::span<const WantedShard> shards);
    void forget(StreamId stream);
    std::vector<ReadShard> take();

  private:
    struct Want {
        StreamId stream;
        WantedShard shard;
        int64_t most_bytes;
    };
    using Expert = std::vector<Want>;            // of one expert
    using Place = std::pair<uint64_t, int64_t>;  // in the files; layer and expert

    void run();
    bool pick_locked(Expert& expert);
    bool has_room_locked(const Expert& expert) const;
    void read(const Expert& expert);
    ReadShard keep(const Want& want, std::shared_ptr<const PackedShard> packed);
    void release(StreamId stream, int64_t bytes);

    const ShardSource& source_;
    const int64_t buffer_bytes_;
    const std::function<void()> on_ready_;

    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_stopping_ = false;
    std::map<Place, Expert> wants_;
    Place cursor_{};                          // reading goes on from here, and round
    std::map<StreamId, int64_t> held_bytes_;  // of streams that want something, or have
    std::vector<ReadShard> ready_;

    std::vector<std::thread> threads_;
};

}  // namespace k3pod::exchange
