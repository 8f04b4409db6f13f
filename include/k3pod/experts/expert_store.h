#pragma once
// The experts that one process holds, and the work of one frame on them.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "k3pod/base/bf16.h"
#include "k3pod/base/status.h"
#include "k3pod/placement/placement.h"
#include "k3pod/weights/model_weights.h"
#include "k3pod/weights/packed_shard.h"
#include "k3pod/wire/frame.h"

namespace k3pod {

// All shards of one holder, packed one behind the other in one allocation. Immutable after load;
// reads are thread-safe.
class ExpertStore {
  public:
    // Loads shards in file order. kDataLoss/kInvalidArgument names layer, expert, tensor. progress
    // may be null.
    static Result<std::unique_ptr<ExpertStore>> load(const Checkpoint& checkpoint,
                                                     const ModelConfig& config, Release release,
                                                     std::span<const Shard> shards,
                                                     const LoadProgress& progress);
    ~ExpertStore();

    // Shards of one expert on this holder (usually one), empty when it is not held.
    std::span<const HeldShard> find(int32_t layer, int32_t expert) const;
    // Of the matrices, without heads and padding.
    int64_t size_bytes() const;
    int64_t num_shards() const;
    // Of these, in the format of the NVFP4 release: those with a block that has no exact MXFP4
    // form.
    int64_t num_nvfp4_shards() const;
    const ModelConfig& config() const;

  private:
    friend class ExpertStoreBuilder;
    struct Impl;
    explicit ExpertStore(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// A store while it is filled, with the contract of TierBuilder (tier_builder.h).
class ExpertStoreBuilder {
  public:
    static Result<std::unique_ptr<ExpertStoreBuilder>> create(const ModelConfig& config,
                                                              Release release,
                                                              std::span<const Shard> shards);
    ~ExpertStoreBuilder();

    Result<std::span<std::byte>> room(size_t shard, int64_t packed_bytes);
    Status finish(size_t shard);
    Result<std::unique_ptr<ExpertStore>> build();

  private:
    struct Impl;
    explicit ExpertStoreBuilder(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Work of one layer on the shards held: out[row] = sum over the entries of that row, in the
// entries' order, of weight * w2 SiTU(w1 z, w3 z), fp32. Not thread-safe (owns scratch); one per
// thread.
class ExpertRunner {
  public:
    // Borrows the store. max_rows bounds R.
    ExpertRunner(const ExpertStore& store, int32_t max_rows);
    ~ExpertRunner();

    // latents: [R, L] bf16. entries sorted by (expert, row). out: [R, L] fp32, overwritten; rows
    // without an entry become zero. kNotFound names layer and expert when an entry's expert is not
    // held. A row's result does not depend on the other rows.
    Status run(int32_t layer, int32_t rows, std::span<const Bf16> latents,
               std::span<const wire::WireEntry> entries, std::span<float> out);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace k3pod
