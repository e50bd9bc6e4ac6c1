KERNEL(512) void inner(const bf16* __restrict__ g_in0, const bf16* __restrict__ g_in1, const bf16* __restrict__ g_in2, bf16* __restrict__ g_out0, bf16* __restrict__ g_out1, bf16* __restrict__ g_out2, i32 p0, i32 p1, i32 p2, f32 p3) {
  f32* s_sum0 = (f32*)(shared_memory());
  f32* s_sum1 = (f32*)(shared_memory() + 64);
  bf16* s_in0 = (bf16*)(shared_memory() + 128);
  f32 r_sum1[8];
  f32 r_sum5[8];
  bf16 r_in0[8];
  bf16 r_out0[8];
  bf16 r_in1[8];
  bf16 r_in2[8];
  bf16 r_out1[1];
  bf16 r_out2[1];
  const i32 v0 = p0 * block_x();
  const i32 v1 = v0 % 8;
  const i32 v2 = thread_x() * 8;
  const bool v3 = block_x() < p1;
  _Pragma("unroll 1")
  for (i32 v4 = 0; v4 < p2; ++v4) {
    const i32 v5 = ((v4 * 512) + thread_x()) * 8;
    const i32 v6 = ((v4 * 4096) + v2) - v1;
    const i32 v7 = v0 + v6;
    const i32 v8 = p0 - v6;
    const i32 v9 = 0 - v6;
    copy_async_part<8>(s_in0 + v5, g_in0 + v7, v9, v3 ? v8 : 0);
  }
  commit_copies();
  wait_copies<0>();
  reset<Sum>(r_sum1);
  _Pragma("unroll 1")
  for (i32 v4 = 0; v4 < p2; ++v4) {
    const i32 v10 = ((v4 * 4096) + v2) - v1;
    const i32 v11 = p0 - v10;
    const i32 v12 = 0 - v10;
    const bool v13 = (v3 && (7 < v11)) && (v12 < 1);
    if (v13) {
      const i32 v14 = ((v4 * 512) + thread_x()) * 8;
      load(r_in0, s_in0 + v14);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        accumulate_(Sum(), r_sum1[v15], to<f32>(r_in0[v15]));
      }
    }
    const bool v16 = 0 < v11;
    if (v3 && (!v13 && v16)) {
      const i32 v17 = ((v4 * 512) + thread_x()) * 8;
      load(r_in0, s_in0 + v17);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const i32 v18 = v11 - v15;
        const i32 v19 = v12 - v15;
        const bool v20 = (0 < v18) && (v19 < 1);
        if (v20) accumulate_(Sum(), r_sum1[v15], to<f32>(r_in0[v15]));
      }
    }
  }
  fold<Sum>(r_sum1);
  r_sum1[0] = reduce_lanes<Sum, 32>(r_sum1[0]);
  publish_warp(s_sum0, r_sum1[0]);
  sync_block();
  r_sum1[0] = collect_warps<Sum, 16>(s_sum0);
  const f32 v21 = r_sum1[0] * p3;
  const bf16 v22 = to<bf16>(v21);
  reset<Sum>(r_sum5);
  _Pragma("unroll 1")
  for (i32 v4 = 0; v4 < p2; ++v4) {
    const i32 v23 = ((v4 * 4096) + v2) - v1;
    const i32 v24 = p0 - v23;
    const i32 v25 = 0 - v23;
    const bool v26 = (v3 && (7 < v24)) && (v25 < 1);
    if (v26) {
      const i32 v27 = ((v4 * 512) + thread_x()) * 8;
      load(r_in0, s_in0 + v27);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const f32 v28 = to<f32>(r_in0[v15]) - v21;
        accumulate_(Sum(), r_sum5[v15], v28, v28);
      }
    }
    const bool v29 = 0 < v24;
    if (v3 && (!v26 && v29)) {
      const i32 v30 = ((v4 * 512) + thread_x()) * 8;
      load(r_in0, s_in0 + v30);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const f32 v31 = to<f32>(r_in0[v15]) - v21;
        const i32 v32 = v24 - v15;
        const i32 v33 = v25 - v15;
        const bool v34 = (0 < v32) && (v33 < 1);
        if (v34) accumulate_(Sum(), r_sum5[v15], v31, v31);
      }
    }
  }
  fold<Sum>(r_sum5);
  r_sum5[0] = reduce_lanes<Sum, 32>(r_sum5[0]);
  publish_warp(s_sum1, r_sum5[0]);
  sync_block();
  r_sum5[0] = collect_warps<Sum, 16>(s_sum1);
  const f32 v35 = fma_rn(r_sum5[0], p3, 9.99999975e-06f);
  const f32 v36 = rsqrt_(v35);
  const bf16 v37 = to<bf16>(v36);
  _Pragma("unroll 1")
  for (i32 v4 = 0; v4 < p2; ++v4) {
    const i32 v38 = ((v4 * 4096) + v2) - v1;
    const i32 v39 = p0 - v38;
    const i32 v40 = 0 - v38;
    const bool v41 = (v3 && (7 < v39)) && (v40 < 1);
    if (v41) {
      const i32 v42 = ((v4 * 512) + thread_x()) * 8;
      load(r_in0, s_in0 + v42);
      load_shifted(r_in1, g_in1, v38, v39);
      load_shifted(r_in2, g_in2, v38, v39);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const f32 v43 = to<f32>(r_in0[v15]) - v21;
        const f32 v44 = v43 * v36;
        const f32 v45 = fma_rn(v44, to<f32>(r_in1[v15]), to<f32>(r_in2[v15]));
        const bf16 v46 = to<bf16>(v45);
        r_out0[v15] = v46;
      }
      const i32 v47 = v0 + v38;
      store(g_out0 + v47, r_out0);
    }
    const bool v48 = 0 < v39;
    if (v3 && (!v41 && v48)) {
      const i32 v49 = ((v4 * 512) + thread_x()) * 8;
      load(r_in0, s_in0 + v49);
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const i32 v50 = v15 + v38;
        const i32 v51 = v39 - v15;
        const i32 v52 = v40 - v15;
        r_in1[v15] = bf16{};
        if (v51 > 0 && v52 <= 0) r_in1[v15] = load1(g_in1 + v50);
      }
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const i32 v53 = v15 + v38;
        const i32 v54 = v39 - v15;
        const i32 v55 = v40 - v15;
        r_in2[v15] = bf16{};
        if (v54 > 0 && v55 <= 0) r_in2[v15] = load1(g_in2 + v53);
      }
      UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
        const f32 v56 = to<f32>(r_in0[v15]) - v21;
        const f32 v57 = v56 * v36;
        const f32 v58 = fma_rn(v57, to<f32>(r_in1[v15]), to<f32>(r_in2[v15]));
        const bf16 v59 = to<bf16>(v58);
        r_out0[v15] = v59;
      }
      const i32 v60 = v0 + v38;
      store_part(g_out0 + v60, r_out0, v40, v3 ? v39 : 0);
    }
  }
  r_out1[0] = v22;
  r_out2[0] = v37;
  const bool v61 = (thread_x() == 0) && v3;
  store_if(g_out1 + block_x(), r_out1, v61);
  store_if(g_out2 + block_x(), r_out2, v61);
}
