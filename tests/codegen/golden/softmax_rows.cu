KERNEL(128) void inner(const bf16* __restrict__ g_in0, bf16* __restrict__ g_out0, i32 p0, i32 p1) {
  f32* s_max0 = (f32*)(shared_memory());
  f32* s_sum1 = (f32*)(shared_memory() + 16);
  f32 r_max1[8];
  f32 r_sum4[8];
  Raw<bf16, 8> q_in0[2];
  bf16 r_in0[8];
  bf16 r_out0[8];
  const i32 v0 = thread_x() % 64;
  const i32 v1 = thread_x() / 64;
  reset<Max>(r_max1);
  const i32 v2 = (block_x() * 2) + v1;
  const i32 v3 = v0 * 8;
  const i32 v4 = (v2 * p0) + v3;
  const bool v5 = v2 < p1;
  UNROLL for (i32 v6 = 0; v6 < 2; ++v6) {
    const i32 v7 = v6 * 512;
    const i32 v8 = v4 + v7;
    const bool v9 = v5 && ((v3 + v7) < p0);
    load_raw_if(q_in0[v6], g_in0 + v8, v9);
  }
  UNROLL for (i32 v6 = 0; v6 < 2; ++v6) {
    const i32 v10 = v6 * 512;
    const bool v11 = v5 && ((v3 + v10) < p0);
    if (v11) {
      unpack(r_in0, q_in0[v6]);
      UNROLL for (i32 v12 = 0; v12 < 8; ++v12) {
        accumulate_(Max(), r_max1[v12], to<f32>(r_in0[v12]));
      }
    }
  }
  fold<Max>(r_max1);
  r_max1[0] = reduce_lanes<Max, 32>(r_max1[0]);
  publish_warp(s_max0, r_max1[0]);
  sync_block();
  r_max1[0] = collect_warps<Max, 2>(s_max0);
  reset<Sum>(r_sum4);
  UNROLL for (i32 v6 = 0; v6 < 2; ++v6) {
    const i32 v13 = v6 * 512;
    const bool v14 = v5 && ((v3 + v13) < p0);
    if (v14) {
      unpack(r_in0, q_in0[v6]);
      UNROLL for (i32 v12 = 0; v12 < 8; ++v12) {
        const f32 v15 = to<f32>(r_in0[v12]) - r_max1[0];
        const f32 v16 = exp_half_(v15);
        accumulate_(Sum(), r_sum4[v12], v16);
      }
    }
  }
  fold<Sum>(r_sum4);
  r_sum4[0] = reduce_lanes<Sum, 32>(r_sum4[0]);
  publish_warp(s_sum1, r_sum4[0]);
  sync_block();
  r_sum4[0] = collect_warps<Sum, 2>(s_sum1);
  const f32 v17 = 1 / r_sum4[0];
  UNROLL for (i32 v6 = 0; v6 < 2; ++v6) {
    const i32 v18 = v6 * 512;
    const bool v19 = v5 && ((v3 + v18) < p0);
    if (v19) {
      unpack(r_in0, q_in0[v6]);
      UNROLL for (i32 v12 = 0; v12 < 8; ++v12) {
        const f32 v20 = to<f32>(r_in0[v12]) - r_max1[0];
        const f32 v21 = exp_half_(v20);
        const f32 v22 = v21 * v17;
        const bf16 v23 = to<bf16>(v22);
        r_out0[v12] = v23;
      }
      const i32 v24 = v4 + v18;
      store(g_out0 + v24, r_out0);
    }
  }
}
