#include "measured_constants.h"

#include "k3pod/config/predict_constants.h"
#include "output_files.h"

namespace k3pod {

Status write_measured(const MeasuredExchange& measured, const FabricOptions& options) {
    if (options.out.empty()) return Status::ok();
    K3POD_TRY(check_outputs({{"--out", options.out}}, {{"--constants", options.constants}}));
    PredictConstants constants = default_predict_constants();
    if (!options.constants.empty()) {
        K3POD_ASSIGN(constants, read_predict_constants(options.constants));
    }
    const auto put = [&](Constant& constant, const std::optional<double>& value) {
        if (value) constant = {*value, measured.source};
    };
    put(constants.round_trip, measured.round_trip_s);
    put(constants.server_link, measured.server_bits_per_s);
    put(constants.station_link, measured.station_bits_per_s);
    return write_output(options.out, to_toml(constants));
}

}  // namespace k3pod
