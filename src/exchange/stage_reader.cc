#include "exchange/stage_reader.h"

#include <algorithm>
#include <utility>

namespace k3pod::exchange {

StageReader::StageReader(const ShardSource& source, int64_t buffer_bytes, int32_t num_threads,
                         std::function<void()> on_ready)
    : source_(source), buffer_bytes_(buffer_bytes), on_ready_(std::move(on_ready)) {
    for (int32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
}

StageReader::~StageReader() {
    stop();
}

void StageReader::stop() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
        if (thread.joinable()) thread.join();
    }
}

void StageReader::want(StreamId stream, std::span<const WantedShard> shards) {
    {
        const std::lock_guard lock(mutex_);
        held_bytes_.try_emplace(stream, 0);
        for (const WantedShard& wanted : shards) {
            const auto [layer, expert, begin, end] = wanted.shard;
            const Place place{source_.place_of(layer, expert), int64_t{layer} << 32 | expert};
            wants_[place].push_back({stream, wanted, source_.most_bytes(wanted.shard)});
        }
    }
    changed_.notify_all();
}

void StageReader::forget(StreamId stream) {
    std::vector<ReadShard> dropped;  // its bytes are released without the mutex
    {
        const std::lock_guard lock(mutex_);
        held_bytes_.erase(stream);
        for (auto it = wants_.begin(); it != wants_.end();) {
            std::erase_if(it->second, [&](const Want& want) { return want.stream == stream; });
            it = it->second.empty() ? wants_.erase(it) : std::next(it);
        }
        const auto kept = std::stable_partition(
            ready_.begin(), ready_.end(), [&](const ReadShard& r) { return r.stream != stream; });
        std::move(kept, ready_.end(), std::back_inserter(dropped));
        ready_.erase(kept, ready_.end());
    }
    changed_.notify_all();
}

std::vector<ReadShard> StageReader::take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(ready_, {});
}

void StageReader::run() {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
        Expert expert;
        if (!pick_locked(expert)) {
            changed_.wait(lock);
            continue;
        }
        for (const Want& want : expert) held_bytes_[want.stream] += want.most_bytes;
        lock.unlock();
        read(expert);
        lock.lock();
    }
}

// The next expert in the order of the files whose nodes all have room: one that is slow, or
// stopped, holds up only those experts of which it has a slice.
bool StageReader::pick_locked(Expert& expert) {
    const auto take = [&](auto it) {
        expert = std::move(it->second);
        cursor_ = it->first;
        wants_.erase(it);
        return true;
    };
    const auto start = wants_.lower_bound(cursor_);
    for (auto it = start; it != wants_.end(); ++it) {
        if (has_room_locked(it->second)) return take(it);
    }
    for (auto it = wants_.begin(); it != start; ++it) {
        if (has_room_locked(it->second)) return take(it);
    }
    return false;
}

bool StageReader::has_room_locked(const Expert& expert) const {
    const int64_t share = buffer_bytes_ / static_cast<int64_t>(held_bytes_.size());
    return std::ranges::all_of(expert, [&](const Want& want) {
        const int64_t held = held_bytes_.at(want.stream);
        return held == 0 || held + want.most_bytes <= share;
    });
}

void StageReader::read(const Expert& expert) {
    std::vector<Shard> slices;
    for (const Want& want : expert) slices.push_back(want.shard.shard);
    auto packed = source_.read(slices);
    std::vector<ReadShard> results;
    for (size_t i = 0; i < expert.size(); ++i) {
        if (packed) {
            results.push_back(keep(expert[i], std::move((*packed)[i])));
        } else {
            release(expert[i].stream, expert[i].most_bytes);
            results.push_back({.stream = expert[i].stream,
                               .index = expert[i].shard.index,
                               .packed = nullptr,
                               .status = packed.status()});
        }
    }
    std::vector<ReadShard> unwanted;  // of streams that ended meanwhile; released without the mutex
    {
        const std::lock_guard lock(mutex_);
        for (ReadShard& result : results) {
            auto& to = held_bytes_.contains(result.stream) ? ready_ : unwanted;
            to.push_back(std::move(result));
        }
    }
    on_ready_();
}

ReadShard StageReader::keep(const Want& want, std::shared_ptr<const PackedShard> packed) {
    const PackedShard* const shard = packed.get();
    // The second pointer counts; the first, which it keeps, frees.
    const auto release_it = [this, want, packed = std::move(packed)](const PackedShard*) mutable {
        packed.reset();
        release(want.stream, want.most_bytes);
    };
    return {.stream = want.stream,
            .index = want.shard.index,
            .packed = std::shared_ptr<const PackedShard>(shard, release_it),
            .status = Status::ok()};
}

void StageReader::release(StreamId stream, int64_t bytes) {
    {
        const std::lock_guard lock(mutex_);
        const auto held = held_bytes_.find(stream);
        if (held != held_bytes_.end()) held->second -= bytes;
    }
    changed_.notify_all();
}

}  // namespace k3pod::exchange
