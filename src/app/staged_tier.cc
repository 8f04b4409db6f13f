#include "staged_tier.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "k3pod/base/log.h"
#include "model_folder.h"

namespace k3pod {
namespace {

// Shards are counted as MXFP4, which nearly all of them are.
int64_t bytes_of(const ModelConfig& config, const Shard& shard) {
    return expert_shard_bytes(config, Release::kMxfp4, shard.end - shard.begin);
}

int64_t bytes_here(const ModelConfig& config, const StagedLoad& load) {
    int64_t bytes = 0;
    for (uint32_t shard = 0; shard < load.shards().size(); ++shard) {
        if (load.has(shard)) bytes += bytes_of(config, load.shards()[shard]);
    }
    return bytes;
}

}  // namespace

StagedTier::StagedTier(const PodConfig& pod, const ExpertConfig& node, MetricsRegistry& metrics)
    : pod_(pod),
      node_(node),
      cached_shards_(metrics.counter("k3pod_stage_cached_shards_total",
                                     "Shards taken from this node's shard cache")) {}

Result<std::unique_ptr<StagedTier>> StagedTier::create(const PodConfig& pod,
                                                       const ExpertConfig& node, const Clock& clock,
                                                       MetricsRegistry& metrics) {
    std::unique_ptr<StagedTier> tier(new StagedTier(pod, node, metrics));
    K3POD_ASSIGN(tier->receiver_,
                 StageReceiver::create(WaitPolicy::kAuto, make_transport_factory(pod, node.device),
                                       clock, metrics));
    return tier;
}

// Goes on with what is there of the same shards, or starts anew.
Status StagedTier::begin(const Assignment& assignment, const ModelConfig& config) {
    const StagingOffer& offer = assignment.staging;
    if (load_ && shards_ == assignment.shards && stamps_ == offer.stamps) return Status::ok();
    load_.reset();
    std::optional<ShardCache> cache;
    if (!node_.shard_cache.empty()) {
        K3POD_ASSIGN(cache, ShardCache::open(node_.shard_cache));
    }
    const Release release =
        offer.release == static_cast<uint32_t>(Release::kMxfp4) ? Release::kMxfp4 : Release::kNvfp4;
    K3POD_ASSIGN(auto builder,
                 TierBuilder::create(node_.backend, config, release, assignment.shards,
                                     pod_.station.max_batch_tokens));
    shards_ = assignment.shards;
    stamps_ = offer.stamps;
    load_ = std::make_unique<StagedLoad>(std::move(builder), shards_, stamps_, std::move(cache));
    return Status::ok();
}

Result<std::unique_ptr<ExpertTier>> StagedTier::load(const Assignment& assignment,
                                                     const ModelConfig& config,
                                                     const Watcher& watcher) {
    K3POD_TRY(begin(assignment, config));
    int64_t total_bytes = 0;
    for (const Shard& shard : shards_) total_bytes += bytes_of(config, shard);
    int64_t done_bytes = 0;
    const LoadProgress progress = [&](int64_t done, int64_t total) {
        watcher.report({.phase = ServerPhase::kLoading,
                        .loaded_bytes = done,
                        .total_bytes = total,
                        .data_address = receiver_->local_address()});
    };
    const int64_t cached_before = load_->num_from_cache();
    K3POD_TRY(load_->take_from_cache(watcher.goes_on));
    done_bytes = bytes_here(config, *load_);
    if (!load_->is_complete()) {
        const StageReceiver::Session session{
            .id = assignment.session,
            .station = assignment.staging.address,
            .is_listening = [&] { progress(done_bytes, total_bytes); },
            .has_shard =
                [&](uint32_t shard) {
                    done_bytes += bytes_of(config, shards_[shard]);
                    progress(done_bytes, total_bytes);
                },
            .goes_on = watcher.goes_on};
        K3POD_TRY(receiver_->receive(session, *load_));
    }
    const int64_t cached = load_->num_from_cache() - cached_before;
    cached_shards_.add(static_cast<double>(cached));
    if (cached > 0) {
        log::info(fmt::format("{} of {} shards came from {}", cached, shards_.size(),
                              node_.shard_cache.string()));
    }
    const auto done = std::exchange(load_, nullptr);
    return done->build();
}

}  // namespace k3pod
