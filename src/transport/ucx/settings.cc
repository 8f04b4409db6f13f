#include "transport/ucx/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "k3pod/base/log.h"

extern char** environ;

namespace k3pod::ucx {
namespace {

Settings with_common_keys(Settings settings) {
    // One lane and no rendezvous: with two NICs in sight UCX stripes 14 KiB over both, four times
    // slower.
    settings.keys.insert(
        settings.keys.end(),
        {{"MAX_EAGER_RAILS", "1"}, {"MAX_RNDV_RAILS", "1"}, {"RNDV_THRESH", "inf"}});
    return settings;
}

const Settings kShm = with_common_keys({
    .name = "ucx/shm",
    // Without error handling an endpoint cannot be made in error mode PEER; the keep-alive is what
    // finds a dead process, so its interval is the time to detection.
    .keys = {{"TLS", "posix"}, {"MM_ERROR_HANDLING", "y"}, {"KEEPALIVE_INTERVAL", "100ms"}},
    .lanes = {"posix"},
    .fragment_bytes = 8000,  // UCX_POSIX_SEG_SIZE is 8256, less the headers
    .locked_bytes = 0,
});

const Settings kTcp = with_common_keys({
    .name = "ucx/tcp",
    // UCX's own keep-alive puts bytes on the socket, which keeps the kernel's from ever running: a
    // cut link then goes unseen. The kernel's finds it in 3 s, a kill shows at once.
    .keys = {{"TLS", "tcp"},
             {"KEEPALIVE_INTERVAL", "inf"},
             {"TCP_KEEPIDLE", "1s"},
             {"TCP_KEEPINTVL", "1s"},
             {"TCP_KEEPCNT", "2"}},
    .lanes = {"tcp"},
    .fragment_bytes = 60 << 10,  // one fragment up to 64 KiB
    .locked_bytes = 0,
});

const Settings kRc = with_common_keys({
    .name = "ucx/rc",
    // "rc" brings UD along for the handshake. The receive queue is cut so that its 64 KiB segments
    // take 32 MiB and not 256. 50 ms x 7 retries report a lost peer in about half a second.
    .keys = {{"TLS", "rc"},
             {"IB_SEG_SIZE", "64K"},
             {"IB_RX_QUEUE_LEN", "512"},
             {"RC_TIMEOUT", "50ms"},
             {"RC_RETRY_COUNT", "7"},
             {"KEEPALIVE_INTERVAL", "1s"},
             {"IB_PCI_RELAXED_ORDERING", "n"}},
    .lanes = {"rc_verbs", "rc_mlx5", "ud_verbs", "ud_mlx5"},
    .fragment_bytes = 60 << 10,
    .locked_bytes = int64_t{512} * (64 << 10),
});

// UCX has no way to be told not to read them.
void remove_ucx_variables() {
    std::vector<std::string> names;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        if (text.starts_with("UCX_")) names.emplace_back(text.substr(0, text.find('=')));
    }
    if (names.empty()) return;
    for (const std::string& name : names) unsetenv(name.c_str());
    log::warning(fmt::format(
        "ignoring {} from the environment: the pod file alone configures the data plane",
        fmt::join(names, ", ")));
}

}  // namespace

const Settings& settings_of(TransportKind kind) {
    switch (kind) {
        case TransportKind::kShm:
            return kShm;
        case TransportKind::kTcp:
            return kTcp;
        case TransportKind::kRc:
            return kRc;
    }
    return kTcp;
}

void isolate_process() {
    remove_ucx_variables();
    static std::once_flag once;
    std::call_once(once, [] {
        // UCX read its global options when the program was loaded; now only its API reaches them.
        for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
        ucs_global_opts_set_value("HANDLE_ERRORS", "none");
        ucs_global_opts_set_value("MEMTYPE_CACHE", "n");
        ucs_global_opts_set_value("LOG_LEVEL", "diag");
    });
}

}  // namespace k3pod::ucx
