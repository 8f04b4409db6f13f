#include "transport/ucx/worker.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "transport/ucx/log_capture.h"

namespace k3pod::ucx {
namespace {

int64_t memlock_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
    return static_cast<int64_t>(limit.rlim_cur);
}

std::string kernel_release() {
    utsname name{};
    return uname(&name) == 0 ? name.release : "unknown";
}

const char* advice_for(TransportKind kind) {
    switch (kind) {
        case TransportKind::kShm:
            return "check that /dev/shm has room (df /dev/shm), or set transport = \"tcp\"";
        case TransportKind::kTcp:
            return "check that the interface is up (ip addr) and named as in the pod file";
        case TransportKind::kRc:
            return "check the device with ibv_devinfo, raise the limit (LimitMEMLOCK=infinity in "
                   "the unit, ulimit -l unlimited in a shell), or set transport = \"tcp\"";
    }
    return "";
}

}  // namespace

std::string explain_start_failure(const UcxOptions& options, const Settings& settings,
                                  ucs_status_t status, const std::string& ucx_said,
                                  int64_t memlock_bytes) {
    return fmt::format(
        "{} on device {} cannot start: {}. UCX {} {}. Receive buffers asked for: {} bytes; "
        "limit on locked memory: {}; kernel {}. What to do: {}",
        settings.name, options.device.empty() ? "any" : options.device, ucs_status_string(status),
        ucp_get_version_string(), ucx_said.empty() ? "gave no reason" : "said: " + ucx_said,
        settings.locked_bytes,
        memlock_bytes < 0 ? "unlimited" : fmt::format("{} bytes", memlock_bytes), kernel_release(),
        advice_for(options.kind));
}

Result<std::unique_ptr<Worker>> Worker::create(const UcxOptions& options) {
    isolate_process();
    route_ucx_log();
    const Settings& settings = settings_of(options.kind);
    const LogCapture capture;
    std::unique_ptr<Worker> worker(new Worker());
    ucs_status_t status = worker->open_context(options, settings);
    if (status == UCS_OK) status = worker->open_worker();
    if (status != UCS_OK) {
        return unavailable(
            explain_start_failure(options, settings, status, capture.text(), memlock_limit()));
    }
    return worker;
}

ucs_status_t Worker::open_context(const UcxOptions& options, const Settings& settings) {
    ucp_config_t* config = nullptr;
    ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
    if (status != UCS_OK) return status;
    for (const auto& [key, value] : settings.keys) {
        if (status == UCS_OK) status = ucp_config_modify(config, key, value);
    }
    if (status == UCS_OK && !options.device.empty()) {
        status = ucp_config_modify(config, "NET_DEVICES", options.device.c_str());
    }
    if (status == UCS_OK) {
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
        params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
        params.name = "k3pod";
        status = ucp_init(&params, config, &context_);
    }
    ucp_config_release(config);
    return status;
}

ucs_status_t Worker::open_worker() {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    // The driver changes from thread to thread, under the transport's mutex.
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    const ucs_status_t status = ucp_worker_create(context_, &params, &worker_);
    if (status != UCS_OK) return status;
    return ucp_worker_get_efd(worker_, &event_fd_);
}

Worker::~Worker() {
    const LogCapture quiet;  // Complaints about requests of peers that died with them.
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    if (context_ != nullptr) ucp_cleanup(context_);
}

Result<std::vector<std::byte>> Worker::address() const {
    ucp_address_t* address = nullptr;
    size_t num_bytes = 0;
    const ucs_status_t status = ucp_worker_get_address(worker_, &address, &num_bytes);
    if (status != UCS_OK) {
        return internal_error(
            fmt::format("UCX gives no worker address: {}", ucs_status_string(status)));
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(address);
    std::vector<std::byte> copy(bytes, bytes + num_bytes);
    ucp_worker_release_address(worker_, address);
    return copy;
}

// ucp_ep_query tells transports only from 1.15 on; the text of ucp_ep_print_info is in every
// release:
// "#                 lane[0]:  1:tcp/eth0 md[0] -> ...".
std::vector<std::string> lanes_of(ucp_ep_h endpoint) {
    char* text = nullptr;
    size_t num_bytes = 0;
    FILE* stream = open_memstream(&text, &num_bytes);
    if (stream == nullptr) return {};
    ucp_ep_print_info(endpoint, stream);
    std::fclose(stream);
    std::istringstream lines(std::string(text, num_bytes));
    std::free(text);

    std::vector<std::string> lanes;
    for (std::string line; std::getline(lines, line);) {
        const size_t lane = line.find("lane[");
        const size_t colon = line.find(':', line.find("]:", lane) + 2);
        const size_t slash = line.find('/', colon);
        if (lane == std::string::npos || colon == std::string::npos || slash == std::string::npos) {
            continue;
        }
        lanes.push_back(line.substr(colon + 1, slash - colon - 1));
    }
    return lanes;
}

}  // namespace k3pod::ucx
