#pragma once
// The subcommands of `athanor`, one file each: every function adds one to the command line. And how they end.

namespace CLI {
class App;
}

namespace athanor::inline cli {

/// Thrown by a subcommand that has printed everything and ends the process with a code other than 0, such as a run that
/// a signal stopped. main() returns `value`, a code of base/exit_codes.h.
struct ExitCode {
  int value;
};

void add_tokenizer_command(CLI::App& app);
void add_prepare_command(CLI::App& app);
void add_data_command(CLI::App& app);
void add_config_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_plot_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_status_command(CLI::App& app);
void add_classify_command(CLI::App& app);
void add_launch_command(CLI::App& app);
void add_yeet_command(CLI::App& app);
void add_checkpoint_command(CLI::App& app);
void add_export_command(CLI::App& app);
void add_import_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_smoke_command(CLI::App& app);
void add_lr_find_command(CLI::App& app);
void add_probe_command(CLI::App& app);
void add_verify_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_checkpoint_diff_command(CLI::App& checkpoint);  ///< a subcommand of `checkpoint`

}  // namespace athanor::inline cli
