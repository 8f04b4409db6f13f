#pragma once
// The station's end. Four files share this class: client.cc is what the step thread and control
// call, client_replies.cc what the transport calls, client_keeper.cc what time brings about,
// client_hold.cc what happens to a layer whose server is lost.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "exchange/client_metrics.h"
#include "exchange/drive_mutex.h"
#include "exchange/frame_plan.h"
#include "exchange/holder_table.h"
#include "exchange/keeper.h"
#include "exchange/message.h"
#include "exchange/peer.h"
#include "k3pod/exchange/exchange.h"
#include "k3pod/ops/combine.h"

namespace k3pod::exchange {

// What one holder owes the dispatched layer.
struct OwedReply {
    HostBuffer rows;           // [rows of the frame, L] bf16 or fp32, fp32 from the station's tier
    SendSlot* slot = nullptr;  // the request; null for the station's tier
    TimePoint sent_at{};
    TimePoint resend_at{};
    Nanoseconds resend_after{};
    bool is_pending = false;
    bool wants_resend = false;  // the last answer was of no use
    Status trouble;             // why the layer is held for it; ok: it is not
};

// The dispatched layer.
struct Exchange {
    bool is_open = false;     // dispatched and not combined
    bool is_waiting = false;  // combine() polls: deadlines count
    uint64_t step = 0;        // the caller's number
    uint64_t wire_step = 0;
    int32_t layer = 0;
    int32_t rows = 0;
    int32_t num_pending = 0;
    TimePoint deadline{};
    Status failure;
    bool is_held = false;  // somebody was in trouble, now or before
    TimePoint held_since{};
    TimePoint held_until{};  // the limit
};

// The held layer as other threads see it.
struct HoldView {
    std::string nodes;  // empty: nothing is held
    int32_t layer = 0;
    TimePoint since{};
};

class Client final : public ExchangeClient, private TransportHandler {
  public:
    Client(const ExchangeOptions& options, const Placement& placement, HolderTable holders,
           FrameWork local, const Clock& clock, MetricsRegistry& metrics, PeerDown peer_down);
    ~Client() override;

    Status start(const MakeTransport& make_transport);

    Status dispatch(const RoutedRows& step) override;
    Status combine(std::span<float> out) override;
    std::string holding() const override;
    void stop_holding(const Status& why) override;
    std::vector<std::byte> local_address() const override { return address_; }
    Status attach(const std::string& node, std::span<const std::byte> address,
                  uint64_t session) override;
    void detach(const std::string& node, const Status& why) override;
    std::vector<std::string> missing() const override;

  private:
    // client.cc. "_locked": under mutex_.
    Peer* find_peer(const std::string& node);
    Status open_exchange_locked(const RoutedRows& step);
    uint64_t number_on_wire_locked(uint64_t step, int32_t layer);
    Status check_holders_locked() const;
    Status send_frame_locked(Peer& peer);
    Result<SendSlot*> wait_for_slot_locked(Peer& peer);
    void write_payload_locked(const Peer& peer, SendSlot& slot);
    Status transmit_locked(Peer& peer);
    void gather_rows(size_t holder, std::byte* to) const;
    Status run_local();
    Status wait_for_replies_locked();
    bool is_complete_or_failed() const {
        return exchange_.num_pending == 0 || !exchange_.failure.is_ok();
    }
    void close_exchange_locked();
    void add_up(std::span<float> out);

    // client_replies.cc
    void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) override;
    void on_sent(uint64_t token) override { end_send(token); }
    void on_peer_failed(PeerId peer, const Status& why) override;
    void on_answer(Peer& peer, const wire::FrameHeader& header, std::span<const std::byte> payload);
    bool is_owed(const Peer& peer, const wire::FrameHeader& header);
    void take_rows(Peer& peer, std::span<const std::byte> payload);
    void take_refusal(Peer& peer, wire::FrameStatus status);
    void ask_again(Peer& peer, const std::string& what);
    Status useless_answer(const Peer& peer, const std::string& what) const;

    // client_keeper.cc
    void keep();
    void drive_idle();
    void tell_of_losses();
    void settle_locked();
    void check_time_locked(TimePoint now);
    void tick_locked(TimePoint now);
    void check_frames_locked(TimePoint now);
    void resend_locked(Peer& peer, TimePoint now);
    void fail_late_locked(TimePoint now);
    std::string describe_late_locked(const Peer& peer, TimePoint now) const;
    Status late_locked(const std::string& from) const;
    void lose_peer_locked(Peer& peer, const Status& why);

    // client_hold.cc
    bool can_hold_locked() const {
        return options_.hold_timeout > Nanoseconds{0} && hold_refusal_.is_ok();
    }
    bool is_gone_for_good_locked(const Peer& peer) const;
    void hold_or_fail_locked(Peer& peer, const Status& why);
    void begin_hold_locked(const Peer& peer);
    void hold_late_locked(TimePoint now);
    void give_up_locked(TimePoint now);
    void end_hold_locked();
    void show_hold_locked();
    int64_t latents_bytes(int64_t rows) const { return rows * options_.limits.latent * 2; }

    const ExchangeOptions options_;
    const HolderTable holders_;
    const FrameWork local_;
    const Clock& clock_;
    const PeerDown peer_down_;
    const uint32_t epoch_;
    const Nanoseconds tick_;
    std::vector<std::byte> address_;

    DriveMutex mutex_;                          // guards everything below but the losses
    std::vector<std::unique_ptr<Peer>> peers_;  // by holder; null for the station's tier
    size_t local_holder_;                       // peers_.size() without one
    FramePlan plan_;
    HostBuffer latents_;                   // [R, L] bf16
    HostBuffer local_latents_;             // [R, L] bf16, the rows of the station's tier
    std::vector<OwedReply> owed_;          // by holder
    std::vector<ops::PartialRows> parts_;  // by holder, of the layer being combined
    Exchange exchange_;
    uint64_t step_offset_ = 0;
    // What the handler found and settle_locked() has to do, as the handler may not use the
    // transport.
    std::vector<std::pair<Peer*, Status>> failed_peers_;
    bool wants_settling_ = false;
    Status hold_refusal_;  // why nothing is held any more
    TimePoint last_tick_{};
    ClientMetrics metrics_;

    mutable std::mutex hold_view_mutex_;
    HoldView hold_view_;

    std::mutex losses_mutex_;
    std::vector<std::pair<std::string, Status>> losses_;  // not told yet

    std::unique_ptr<Transport> transport_;  // after what its sends and handler use
    std::unique_ptr<Keeper> keeper_;        // last: its thread uses all of it
};

}  // namespace k3pod::exchange
