#include "transport/ucx/log_capture.h"

#include <fmt/format.h>
#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "k3pod/base/log.h"

namespace k3pod::ucx {
namespace {

thread_local LogCapture* active_capture = nullptr;

}  // namespace

struct LogRouter {
    static ucs_log_func_rc_t route(const char* /*file*/, unsigned /*line*/,
                                   const char* /*function*/, ucs_log_level_t level,
                                   const ucs_log_component_config_t* /*component*/,
                                   const char* format, va_list args) {
        char text[1024];
        std::vsnprintf(text, sizeof(text), format, args);
        if (active_capture != nullptr) {
            if (!active_capture->lines_.empty()) active_capture->lines_ += "; ";
            active_capture->lines_ += text;
            active_capture->has_error_ |= level <= UCS_LOG_LEVEL_ERROR;
        } else if (level <= UCS_LOG_LEVEL_ERROR) {
            log::error(fmt::format("ucx: {}", text));
        }
        // A fatal line is followed by abort(): UCX's own printer may still say its word.
        return level == UCS_LOG_LEVEL_FATAL ? UCS_LOG_FUNC_RC_CONTINUE : UCS_LOG_FUNC_RC_STOP;
    }
};

LogCapture::LogCapture() : outer_(active_capture) {
    active_capture = this;
}

LogCapture::~LogCapture() {
    active_capture = outer_;
}

std::string LogCapture::clause() const {
    return lines_.empty() ? std::string() : "; UCX said: " + lines_;
}

void route_ucx_log() {
    static std::once_flag once;
    std::call_once(once, [] { ucs_log_push_handler(LogRouter::route); });
}

}  // namespace k3pod::ucx
