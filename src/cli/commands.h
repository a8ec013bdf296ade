#pragma once
// The subcommands of `athanor`, one file each. Every function adds one to the command line.

namespace CLI {
class App;
}

namespace athanor::inline cli {

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

}  // namespace athanor::inline cli
