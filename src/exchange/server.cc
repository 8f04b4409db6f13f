#include "exchange/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "exchange/pacer.h"
#include "k3pod/base/log.h"
#include "k3pod/ops/elementwise.h"
#include "k3pod/wire/codec.h"

namespace k3pod::exchange {

constexpr Nanoseconds kLongestSearchPause = std::chrono::seconds(2);

Server::Server(const ExchangeOptions& options, const Clock& clock, MetricsRegistry& metrics)
    : options_(options),
      clock_(clock),
      tick_(tick_of(options)),
      search_pause_(options.heartbeat_interval),
      last_tick_(clock.now()),
      metrics_(metrics, options.limits.num_layers) {
    const wire::FrameLimits& limits = options.limits;
    const int64_t max_entries = int64_t{limits.max_rows} * limits.top_k;
    for (Request& request : requests_) {
        request.payload =
            HostBuffer(wire::request_payload_bytes(limits.latent, limits.max_rows, max_entries));
    }
    const int64_t f32_bytes = wire::reply_payload_bytes(limits.latent, limits.max_rows, true);
    for (SendSlot& reply : replies_) reply.payload = HostBuffer(f32_bytes);
    result_ = HostBuffer(f32_bytes);
    unsent_notes_.reserve(notes_.size());
}

Server::~Server() {
    is_stopping_ = true;
    if (transport_) transport_->wake();
    if (worker_.joinable()) worker_.join();
    if (keeper_) keeper_->stop();
}

Status Server::start(const MakeTransport& make_transport) {
    K3POD_ASSIGN(transport_, make_transport(*this));
    address_ = transport_->local_address();
    worker_ = std::thread([this] { work(); });
    keeper_ = std::make_unique<Keeper>(tick_, [this] { keep(); });
    return Status::ok();
}

// ---- sessions: control's threads ----

Status Server::open_session(const Assignment& assignment,
                            std::shared_ptr<const ExpertStore> store) {
    const auto runner = std::make_shared<ExpertRunner>(*store, options_.limits.max_rows);
    return open_session(assignment,
                        [store = std::move(store), runner](
                            int32_t layer, int32_t rows, std::span<const Bf16> latents,
                            std::span<const wire::WireEntry> entries, std::span<float> out) {
                            return runner->run(layer, rows, latents, entries, out);
                        });
}

Status Server::open_session(const Assignment& assignment, FrameWork work) {
    if (assignment.max_rows < 1 || assignment.max_rows > options_.limits.max_rows) {
        return invalid_argument(fmt::format(
            "the station sends up to {} rows a frame, this node has room for {}; give both the "
            "same pod file",
            assignment.max_rows, options_.limits.max_rows));
    }
    auto session = std::make_shared<ServedSession>();
    session->id = assignment.session;
    session->epoch = assignment.epoch;
    session->node = assignment.node_index;
    session->limits = options_.limits;
    session->limits.max_rows = assignment.max_rows;
    session->station_address = assignment.station_address;
    session->work = std::move(work);

    const UrgentLock drive(mutex_);
    close_session_locked();
    K3POD_ASSIGN(station_, transport_->connect(session->station_address, "station"));
    session_ = std::move(session);
    is_station_lost_ = false;
    station_heard_ = clock_.now();
    next_search_ = station_heard_;
    search_pause_ = options_.heartbeat_interval;
    was_refusal_logged_ = false;
    return Status::ok();
}

void Server::close_session(uint64_t session) {
    const UrgentLock drive(mutex_);
    if (session_ && session_->id == session) close_session_locked();
}

void Server::close_session_locked() {
    if (!session_) return;
    transport_->disconnect(station_);
    session_.reset();
    arriving_->is_full = false;
}

// ---- the worker ----

void Server::work() {
    const std::lock_guard drive(mutex_);
    Pacer pacer(options_.wait);
    while (!is_stopping_) {
        if (arriving_->is_full) {
            serve_request_locked();
            continue;
        }
        const int num_events = transport_->progress();
        settle_locked();
        if (pacer.keeps_polling(num_events)) continue;
        const TimePoint now = clock_.now();
        check_time_locked(now);
        pacer.pause(now, mutex_, *transport_, tick_);
    }
}

// Computes with the transport released, so that the keeper can answer heartbeats meanwhile.
void Server::serve_request_locked() {
    std::swap(arriving_, working_);
    const std::shared_ptr<const ServedSession> session = session_;
    if (SendSlot* reply = wait_for_slot_locked(*session)) {
        mutex_.unlock();
        const TimePoint start = clock_.now();
        const Status done = compute(*session, *reply);
        const double seconds = to_seconds(clock_.now() - start);
        mutex_.lock();
        metrics_.frame_seconds.observe(seconds);
        // Without its session the station has given the request up.
        if (session == session_) {
            answer_locked(*reply, done);
        } else {
            metrics_.drop(FrameDrop::kSession);
        }
    } else {
        metrics_.drop(FrameDrop::kBusy);
    }
    working_->is_full = false;
}

// Null when earlier replies do not leave within the frame deadline, or the session ends.
SendSlot* Server::wait_for_slot_locked(const ServedSession& session) {
    const auto free_slot = [&]() -> SendSlot* {
        for (SendSlot& reply : replies_) {
            if (reply.sends_in_flight == 0) return &reply;
        }
        return nullptr;
    };
    if (SendSlot* slot = free_slot()) return slot;
    const TimePoint deadline = clock_.now() + options_.frame_deadline;
    Pacer pacer(options_.wait);
    while (!is_stopping_ && session_.get() == &session) {
        const int num_events = transport_->progress();
        settle_locked();
        if (SendSlot* slot = free_slot()) return slot;
        if (pacer.keeps_polling(num_events)) continue;
        const TimePoint now = clock_.now();
        check_time_locked(now);
        if (now >= deadline) break;
        pacer.pause(now, mutex_, *transport_, tick_);
    }
    return nullptr;
}

// Reads the request in work and writes the payload of its reply. Without the mutex.
Status Server::compute(const ServedSession& session, SendSlot& reply) {
    const wire::FrameHeader& header = working_->header;
    const int64_t values = int64_t{header.rows} * options_.limits.latent;
    const bool is_f32 = (header.flags & wire::kFlagReplyF32) != 0;
    const std::span latents = as_span<Bf16>(working_->payload, values);
    const std::span entries(
        reinterpret_cast<const wire::WireEntry*>(latents.data() + latents.size()), header.entries);
    HostBuffer& sums = is_f32 ? reply.payload : result_;
    K3POD_TRY(
        session.work(header.layer, header.rows, latents, entries, as_span<float>(sums, values)));
    if (!is_f32) ops::to_bf16(as_span<float>(sums, values), as_span<Bf16>(reply.payload, values));
    return Status::ok();
}

// ---- time ----

void Server::keep() {
    constexpr int kMaxPolls = 64;
    if (!mutex_.try_lock()) return;  // The worker drives.
    const std::lock_guard drive(mutex_, std::adopt_lock);
    for (int i = 0; i < kMaxPolls; ++i) {
        const int num_events = transport_->progress();
        settle_locked();
        if (num_events == 0) break;
    }
    check_time_locked(clock_.now());
}

void Server::check_time_locked(TimePoint now) {
    if (now - last_tick_ < tick_) return;
    last_tick_ = now;
    if (was_station_heard_) station_heard_ = now;
    was_station_heard_ = false;
    metrics_.silence_seconds.set(session_ ? to_seconds(now - station_heard_) : 0);
    metrics_.publish();
    if (session_ && is_station_lost_ && now >= next_search_) find_station_locked(now);
}

// The way to the station broke, but control has not ended the session: the station lives, and asks
// again for what got lost. Over a cut link each search fails a moment later, and every one of them
// is an endpoint that UCX has to take down: the pauses double until a search has held.
void Server::find_station_locked(TimePoint now) {
    if (now - next_search_ >= kLongestSearchPause) search_pause_ = options_.heartbeat_interval;
    next_search_ = now + search_pause_;
    search_pause_ = std::min(2 * search_pause_, kLongestSearchPause);
    transport_->disconnect(station_);
    const Result<PeerId> found = transport_->connect(session_->station_address, "station");
    if (!found.is_ok()) return;
    station_ = *found;
    is_station_lost_ = false;
}

}  // namespace k3pod::exchange

namespace k3pod {

Result<std::unique_ptr<ExchangeServer>> ExchangeServer::create(const ExchangeOptions& options,
                                                               const MakeTransport& make_transport,
                                                               const Clock& clock,
                                                               MetricsRegistry& metrics) {
    K3POD_TRY(exchange::check_options(options));
    auto server = std::make_unique<exchange::Server>(options, clock, metrics);
    K3POD_TRY(server->start(make_transport));
    return std::unique_ptr<ExchangeServer>(std::move(server));
}

}  // namespace k3pod
