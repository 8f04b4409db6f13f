#pragma once
// The data plane: UCX active messages, one fragment each, eager, error mode PEER.
//
// UCX's callbacks only note what happened; progress() acts on it, because calling back into UCX
// from a callback has crashed several releases. A mutex guards the worker, so that wait() can arm
// it while another thread drives; it costs some 20 ns a call.

#include <ucp/api/ucp.h>

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "k3pod/transport/transport.h"
#include "transport/message.h"
#include "transport/ucx/process_watch.h"
#include "transport/ucx/reassembly.h"
#include "transport/ucx/settings.h"
#include "transport/ucx/wake_event.h"
#include "transport/ucx/worker.h"

namespace k3pod::ucx {

class UcxTransport final : public Transport {
  public:
    static Result<std::unique_ptr<Transport>> create(const UcxOptions& options,
                                                     TransportHandler& handler);
    ~UcxTransport() override;

    std::vector<std::byte> local_address() const override { return address_; }
    std::string name() const override { return settings_.name; }
    Result<PeerId> connect(std::span<const std::byte> address,
                           const std::string& peer_name) override;
    void disconnect(PeerId peer) override;
    Status send(PeerId peer, std::span<const std::byte> header, std::span<const std::byte> payload,
                uint64_t token) override;
    int64_t max_message_bytes() const override;
    int progress() override;
    void wait(Nanoseconds timeout) override;
    void wake() override { wake_.wake(); }

  private:
    // An endpoint. UCX holds a pointer to it until the endpoint is closed to the end.
    struct Peer {
        PeerId id;
        std::string name;
        UcxTransport* owner;
        ucp_ep_h endpoint = nullptr;
        uint32_t num_messages = 0;      // split ones
        const char* failure = nullptr;  // static text
        ucs_status_ptr_t close_request = nullptr;
    };
    // A send() that UCX has not finished, in one piece or in parts. UCX holds a pointer to it per
    // request.
    struct SendOp {
        UcxTransport* owner;
        PeerId peer;
        uint64_t token;
        int num_requests = 0;
        bool has_ended = false;  // on_sent was called; only UCX still refers to it
        std::vector<std::array<std::byte, kFirstPartHeaderBytes>> part_headers;
    };
    struct FinishedSend {
        SendOp* op;
        void* request;
    };

    UcxTransport(TransportKind kind, std::unique_ptr<Worker> worker, TransportHandler& handler);
    Status open();

    // UCX's callbacks.
    static ucs_status_t on_whole(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t data_bytes, const ucp_am_recv_param_t* param);
    static ucs_status_t on_part(void* self, const void* header, size_t header_bytes, void* data,
                                size_t data_bytes, const ucp_am_recv_param_t* param);
    static void on_send_done(void* request, ucs_status_t status, void* op);
    static void on_endpoint_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

    SendOp& take_op(PeerId peer, uint64_t token);
    ucs_status_t post(SendOp& op, ucp_ep_h endpoint, unsigned am_id,
                      std::span<const std::byte> header, std::span<const std::byte> payload);
    ucs_status_t post_parts(SendOp& op, Peer& peer, std::span<const std::byte> header,
                            std::span<const std::byte> payload);
    Status check_lanes(const Peer& peer) const;

    void finish_sends();
    void end_op(SendOp& op);
    void note_ended_processes();
    // `ucx_said` is LogCapture::clause().
    void report_failures(const std::string& ucx_said);
    void start_closing(std::unique_ptr<Peer> peer);
    void advance_closings();
    void end_ops_of(PeerId peer);

    const TransportKind kind_;
    const Settings& settings_;
    const uint64_t sender_id_;  // in our parts; random, so that no two senders share it
    TransportHandler& handler_;
    SteadyClock clock_;
    Reassembly reassembly_{clock_};
    std::vector<std::byte> address_;
    WakeEvent wake_;

    transport::HandlerGate gate_;

    std::mutex mutex_;  // all below, and every call into UCX
    std::unique_ptr<Worker> worker_;
    bool is_closing_down_ = false;  // the handler is not called any more
    int num_events_ = 0;
    int polls_until_watch_ = 0;  // progress() looks at watch_ only now and then
    ProcessWatch watch_;         // shm: processes of connected peers
    PeerId next_peer_ = 0;
    std::unordered_map<PeerId, std::unique_ptr<Peer>> peers_;
    std::vector<PeerId> failed_peers_;
    std::vector<std::unique_ptr<Peer>> closing_;
    std::vector<std::unique_ptr<SendOp>> ops_;  // owns them all
    std::vector<SendOp*> free_ops_;
    std::vector<uint64_t> sent_tokens_;  // sends that were over when send() returned
    std::vector<FinishedSend> finished_sends_;
};

}  // namespace k3pod::ucx
