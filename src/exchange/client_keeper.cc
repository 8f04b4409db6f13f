// What time brings about on the station: heartbeats, resends, deadlines, dead peers. Runs on
// whichever thread drives.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "exchange/client.h"

namespace k3pod::exchange {

void Client::keep() {
    drive_idle();
    tell_of_losses();
}

// Nobody waits for a reply, but peers want to be heard.
void Client::drive_idle() {
    constexpr int kMaxPolls = 64;
    if (!mutex_.try_lock()) return;  // Somebody drives.
    const std::lock_guard drive(mutex_, std::adopt_lock);
    for (int i = 0; i < kMaxPolls; ++i) {
        const int num_events = transport_->progress();
        settle_locked();
        if (num_events == 0) break;
    }
    check_time_locked(clock_.now());
}

// On the keeper's thread and without a lock, as the callee may call back.
void Client::tell_of_losses() {
    std::vector<std::pair<std::string, Status>> losses;
    {
        const std::lock_guard lock(losses_mutex_);
        losses.swap(losses_);
    }
    if (!peer_down_) return;
    for (const auto& [node, why] : losses) peer_down_(node, why);
}

// What the handler noted during progress().
void Client::settle_locked() {
    if (!wants_settling_) return;
    wants_settling_ = false;
    const auto failed = std::exchange(failed_peers_, {});
    for (const auto& [peer, why] : failed) lose_peer_locked(*peer, why);
    const TimePoint now = clock_.now();
    for (const auto& peer : peers_) {
        if (peer && owed_[peer->index()].wants_resend) resend_locked(*peer, now);
    }
}

void Client::check_time_locked(TimePoint now) {
    if (now - last_tick_ >= tick_) tick_locked(now);
    if (exchange_.is_waiting) check_frames_locked(now);
}

void Client::tick_locked(TimePoint now) {
    // When this process was stopped or starved, it could not hear; that is nobody's silence.
    const Nanoseconds pause = now - last_tick_;
    last_tick_ = now;
    int num_up = 0;
    for (const auto& peer : peers_) {
        if (!peer) continue;
        if (pause >= options_.heartbeat_interval) peer->forgive(pause);
        const Status alive = peer->tick(*transport_, now, options_);
        if (!alive.is_ok()) lose_peer_locked(*peer, alive);
        num_up += peer->is_up() ? 1 : 0;
    }
    metrics_.peers_up.set(num_up);
    metrics_.publish();
}

void Client::check_frames_locked(TimePoint now) {
    if (is_complete_or_failed()) return;
    if (now >= exchange_.deadline) {
        if (!can_hold_locked()) return fail_late_locked(now);
        hold_late_locked(now);
    }
    if (exchange_.is_held && now >= exchange_.held_until) return give_up_locked(now);
    for (const auto& peer : peers_) {
        if (!peer) continue;
        const OwedReply& owed = owed_[peer->index()];
        if (owed.is_pending && now >= owed.resend_at) resend_locked(*peer, now);
    }
}

// Servers keep no state between frames, so sending again is always safe. The slot must not be
// touched while an earlier send reads it; then that send has yet to leave, and another is no help.
void Client::resend_locked(Peer& peer, TimePoint now) {
    OwedReply& owed = owed_[peer.index()];
    owed.wants_resend = false;
    if (!owed.is_pending || !peer.is_up() || owed.slot->sends_in_flight > 0) return;
    owed.resend_after = std::min(2 * owed.resend_after, options_.frame_deadline);
    owed.resend_at = now + owed.resend_after;
    ++owed.slot->header.attempt;
    peer.metrics.resends.add();
    static_cast<void>(transmit_locked(peer));  // A failure is the exchange's by now, or held.
}

void Client::fail_late_locked(TimePoint now) {
    std::string late;
    for (const auto& peer : peers_) {
        if (!peer || !owed_[peer->index()].is_pending) continue;
        peer->metrics.deadline_failures.add();
        late += (late.empty() ? "" : ", ") + describe_late_locked(*peer, now);
    }
    exchange_.failure = late_locked(late);
}

std::string Client::describe_late_locked(const Peer& peer, TimePoint now) const {
    return fmt::format("{} (sent {} times, last heard {:.2f} s ago)", peer.name(),
                       owed_[peer.index()].slot->header.attempt + 1, to_seconds(peer.silence(now)));
}

Status Client::late_locked(const std::string& from) const {
    return deadline_exceeded(fmt::format("no answer to layer {} of step {} within {:.2f} s from {}",
                                         exchange_.layer, exchange_.step,
                                         to_seconds(options_.frame_deadline), from));
}

void Client::lose_peer_locked(Peer& peer, const Status& why) {
    hold_or_fail_locked(peer, why);
    if (!peer.is_up()) return;
    peer.disconnect(*transport_, why, clock_.now());
    {
        const std::lock_guard lock(losses_mutex_);
        losses_.emplace_back(peer.name(), why);
    }
    keeper_->nudge();
}

}  // namespace k3pod::exchange
