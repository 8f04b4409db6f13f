#pragma once
// One UCX context with one worker, made with our settings and nobody else's.

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "k3pod/base/status.h"
#include "k3pod/transport/transport.h"
#include "transport/ucx/settings.h"

namespace k3pod::ucx {

class Worker {
  public:
    // Fails naming the transport, the device, what UCX said, the limit on locked memory and what to
    // do.
    static Result<std::unique_ptr<Worker>> create(const UcxOptions& options);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    ucp_worker_h handle() const { return worker_; }
    // Readable when an armed worker has something to do.
    int event_fd() const { return event_fd_; }
    // As UCX gives it, without our envelope.
    Result<std::vector<std::byte>> address() const;

  private:
    Worker() = default;
    ucs_status_t open_context(const UcxOptions& options, const Settings& settings);
    ucs_status_t open_worker();

    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    int event_fd_ = -1;
};

// The sentence for a person when a transport cannot start. `ucx_said` is from LogCapture;
// memlock_bytes is RLIMIT_MEMLOCK, negative for unlimited.
std::string explain_start_failure(const UcxOptions& options, const Settings& settings,
                                  ucs_status_t status, const std::string& ucx_said,
                                  int64_t memlock_bytes);

// Which of UCX's transports the endpoint sends over, e.g. {"tcp"}; empty when UCX does not say.
std::vector<std::string> lanes_of(ucp_ep_h endpoint);

}  // namespace k3pod::ucx
