/* SPDX-License-Identifier: MIT */
/* What every test starts from: clients in one TSG, and how they are doing. */
#ifndef SCENE_H
#define SCENE_H

#include "lab.h"

#define WILD	0x7f1234567000ull
#define RANGE	0x7e0000000000ull
#define KIB	1024ull
#define MIB	(1024 * KIB)
#define GIB	(1024 * MIB)
#define FAR	0x100000000000ull	/* where nobody has anything */
#define STEP	(256 * GIB)		/* what one entry of the second directory spans */
#define OWN	(FAR + 64 * STEP)	/* a range of whoever has one, with nothing mapped in it */
#define HOUR_MS	3600000u
#define PATIENCE_MS	(30000u * slowness)	/* for what happens at once on a machine with nothing else to do */
#define SINKS	256u
#define RING	4096u	/* records */
#define CHURN	2200u	/* address spaces of two records each: more than the ring has */

extern bool long_run;
extern unsigned int slowness;	/* how much longer things may take, on a kernel that checks everything */
extern const char *skipped;	/* why the test that runs has nothing to do */

#define NEEDS(fact, why) do {							\
	if (!(fact)) {								\
		skipped = why;							\
		return;								\
	}									\
} while (0)

uint32_t fresh_tsg(void);
bool is_dead(struct client *c);
bool is_well(struct client *c);
void give_memory(struct client *c);
void end_both(struct client *a, struct client *b);
void two_clients(struct client *a, struct client *b);

/* What became of the fault of a, b's neighbour: in the GPU, and in the notice, which it returns if there is one. */
const struct uvm_mps_record *expect(struct client *a, struct client *b, struct emu_access_request r, char cls,
				    uint8_t sink, enum emu_result result);

/*
 * The first fatal fault since the last reading of the notices, which is to be of this class and end; NULL: there is
 * none, as with the stock module.
 */
const struct uvm_mps_record *told(char cls, uint8_t verdict);

/* Every one was isolated, the neighbour lives, and the client's own memory is what it was. */
void expect_isolated(struct client *a, struct client *b, const struct emu_access_request *r, uint32_t count);

/* Stores of another process, so that this one can go on while the GPU serves them; all are to end in the same way. */
pid_t start_accesses(struct client *c, uint64_t va, uint32_t count, uint64_t stride, enum emu_result result);
bool went_well(pid_t child);

/* Loads the module anew if it was loaded with other parameters; stock, without those that it has not. */
void load_anew(const char *parameters);
#define BUILTIN_TESTS	"uvm_enable_builtin_tests=1"

/* The tests. */
void a_wild_store_ends_its_client_alone(void);
void class_b_the_unmapped_part_of_an_external_range(void);
void class_c_a_store_to_a_read_only_mapping(void);
void class_c_with_small_pages_gets_the_private_page(void);
void a_hole_beside_small_pages_gets_the_private_page(void);
void class_d_dead_managed_memory_is_served(void);
void class_d_living_managed_memory_is_left_to_the_driver(void);
void a_prefetch_harms_nobody(void);
void class_o_a_copy_engine_fault_restarts_its_channel(void);
void class_o_a_host_fault_restarts_its_channel(void);
void classes_h_to_k_pass_through_with_a_notice(void);
void a_client_that_nobody_shares_with_is_left_to_the_driver(void);
void observing_changes_nothing_but_tells(void);
void a_private_page_holds_nothing_of_anybody(void);
void class_n_a_fetch_from_a_hole_is_left_to_the_driver(void);
void a_sweep_gets_larger_windows(void);
void a_wild_index_of_32_bits_ends_its_client_alone(void);
void a_wild_index_of_64_bits_ends_its_client_alone(void);
void at_the_limit_the_whole_address_space_becomes_the_sink(void);
void without_memory_for_a_private_page_the_verdict_is_failed(void);
void a_storm_on_one_mapping_rewrites_it_once(void);
void what_ends_everybody_is_told_after_any_storm(void);
void memory_that_ends_in_the_middle_of_a_storm_harms_nobody(void);
void an_address_that_no_cpu_has_is_isolated_where_the_gpu_has_it(void);
void the_upper_half_of_the_addresses_is_isolated(void);
void the_last_resort_has_both_halves_of_the_addresses(void);
void several_gpus_are_left_to_the_driver_without_the_key(void);
void a_wild_store_on_one_gpu_is_isolated_there_alone(void);
void a_mapping_on_the_second_gpu_is_rewritten_there_alone(void);
void storms_on_two_gpus_at_once_are_isolated_on_both(void);
void a_gpu_that_a_condemned_client_gives_up_takes_its_sinks_along(void);
void sudden_death_on_two_gpus_harms_nobody(void);
void with_hmm_faults_are_left_to_the_driver_without_the_key(void);
void with_hmm_and_the_key_a_hole_is_isolated_in_small_sinks(void);
void with_hmm_faults_inside_its_blocks_are_left_to_the_driver(void);
void a_fault_waits_for_another_of_the_same_client(void);
void a_storm_is_survived_and_counted_exactly(void);
void a_condemned_client_maps_nothing_new(void);
void refusals_that_are_not_told_are_counted(void);
void the_kernel_kills_at_the_deadline_without_a_daemon(void);
void sudden_death_harms_nobody_while_the_tables_are_held(void);
void a_hold_says_what_it_keeps_and_ends_in_its_own_thread(void);
void one_client_does_not_take_the_graves_of_others(void);
void one_subcontext_does_not_take_the_graves_of_its_clients_others(void);
void a_zombie_fault_names_the_dead_client(void);
void teardown_in_every_order_leaves_nothing(void);
void the_device_keeps_its_promises(void);
void a_process_has_the_number_of_the_readers_namespace(void);
void only_an_administrator_decides(void);
void a_record_that_could_not_be_handed_over_is_not_lost(void);
void a_flood_of_address_spaces_does_not_wash_a_fault_away(void);
void a_driver_on_no_list_only_observes(void);
void an_untested_driver_only_observes(void);
void from_packet_to_replay_takes_about_as_long_as_the_cancel(void);
void a_hundred_thousand_faults_leave_nothing(void);
void the_module_comes_back_after_an_unload(void);
void the_self_test_passes(void);
void the_daemons_reader_sees_what_the_module_tells(void);
void the_daemon_names_and_ends_the_culprit(void);
void the_daemon_waits_until_nothing_is_left_of_the_culprit(void);
void the_daemon_replaces_the_server_when_the_fault_is_not_isolated(void);

#endif
